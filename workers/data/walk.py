"""Every file below a folder of this machine, in one order everywhere, however links run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from workers.data.reader import BadFormat

_DEEPEST = 64  # folders in folders


def is_hidden(path: str) -> bool:
    """Whether a folder on the path, or the file, has a name that begins with a dot."""
    return path.startswith(".") or "/." in path


def walk(root: str, suffixes: frozenset[str]) -> Iterator[str]:
    """The files below `root`, by `workers.data.place.Place.files`.

    A folder that links lead to is walked once for all of them, besides the time on its own path, and never
    from inside itself: so there is an end to every knot of links. Memory: the names in one folder.

    Raises:
        BadFormat: folders are nested too deeply, a link to a folder leads out of `root`, or a folder cannot
            be listed.
    """
    wanted = tuple(suffix.encode() for suffix in suffixes)
    for path in _Walk(os.fsencode(root), wanted).below(b"", os.fsencode(root), 0):
        yield os.fsdecode(path)


@dataclass
class _Walk:
    root: bytes  # real
    suffixes: tuple[bytes, ...]
    linked: set[bytes] = field(default_factory=set)  # real folders that were entered by a link

    def below(self, folder: bytes, real: bytes, depth: int) -> Iterator[bytes]:
        """The files below `folder`, a path relative to the root that ends with a slash or is empty."""
        if depth > _DEEPEST:
            raise BadFormat(f"folders are nested more than {_DEEPEST} deep")
        names, links = self._listed(real)
        for name in names:
            if not name.endswith(b"/"):
                yield folder + name
            elif name not in links:
                yield from self.below(folder + name, os.path.join(real, name[:-1]), depth + 1)  # noqa: PTH118
            elif self._enters(links[name], real):
                yield from self.below(folder + name, links[name], depth + 1)

    def _listed(self, real: bytes) -> tuple[list[bytes], dict[bytes, bytes]]:
        """The wanted names in a folder, folders with a slash behind them, and where links to folders lead.

        Sorted like this, names come in the order of the paths that begin with them.
        """
        names: list[bytes] = []
        links: dict[bytes, bytes] = {}
        try:
            with os.scandir(real) as entries:
                for entry in entries:
                    if entry.name.startswith(b"."):
                        continue
                    if entry.is_symlink():
                        target = self._folder_at(entry)
                        if target is not None:
                            links[entry.name + b"/"] = target
                            names.append(entry.name + b"/")
                            continue
                    elif entry.is_dir(follow_symlinks=False):
                        names.append(entry.name + b"/")
                        continue
                    if entry.name.lower().endswith(self.suffixes):
                        names.append(entry.name)
        except OSError:
            raise BadFormat("a folder of the data set cannot be listed") from None
        return sorted(names), links

    def _folder_at(self, link: os.DirEntry[bytes]) -> bytes | None:
        """The real folder inside the root that the link leads to; None if it leads to no folder.

        Raises:
            BadFormat: the link leads out or nowhere, and would not be missed as the row of an image.
        """
        target = os.path.realpath(link.path)
        inside = target == self.root or target.startswith(self.root.rstrip(b"/") + b"/")
        if inside and os.path.exists(target):  # noqa: PTH110
            return target if os.path.isdir(target) else None  # noqa: PTH112
        if link.name.lower().endswith(self.suffixes):
            return None
        raise BadFormat("a link below the location leads out of it, or nowhere")

    def _enters(self, target: bytes, real: bytes) -> bool:
        """Whether this link to a folder is to be followed from the folder `real`."""
        if target in self.linked or (real + b"/").startswith(target.rstrip(b"/") + b"/"):
            return False
        self.linked.add(target)
        return True
