# syntax=docker/dockerfile:1
# Two images: `api` (HTTP API, scheduler, migrations; no torch) and `worker` (runs jobs).
#   docker build --target api -t expunge-api .
#   docker build --target worker -t expunge-worker .
ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim AS installed
ENV PATH=/opt/expunge/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/expunge
WORKDIR /src
COPY pyproject.toml README.md ./
COPY app app
COPY workers workers
COPY models_store models_store
COPY migrations migrations
# hadolint ignore=DL3013
RUN --mount=type=cache,target=/root/.cache/pip pip install '.[s3]'

FROM installed AS installed-worker
# Another index of torch, such as https://download.pytorch.org/whl/cpu for machines without a GPU.
ARG TORCH_INDEX_URL=https://pypi.org/simple
# The versions are a range, as in pyproject.toml: whoever builds takes the newest that fits their GPU.
# hadolint ignore=DL3013
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --index-url "$TORCH_INDEX_URL" "torch>=2.11" "torchvision>=0.26" && pip install '.[worker,s3]'

FROM python:${PYTHON_VERSION}-slim AS base
ENV PATH=/opt/expunge/bin:$PATH PYTHONUNBUFFERED=1 EXPUNGE_VAR=/var/lib/expunge
# The folders of the named volumes belong to the user that the programs run as.
RUN useradd --uid 10001 --create-home expunge \
    && install -d -o expunge -g expunge -m 0700 \
       /var/lib/expunge /var/lib/expunge/keys /var/lib/expunge/store
WORKDIR /var/lib/expunge
USER 10001
ENTRYPOINT ["expunge"]

FROM base AS worker
COPY --from=installed-worker /opt/expunge /opt/expunge
CMD ["worker"]
HEALTHCHECK --interval=60s --timeout=30s --start-period=60s \
    CMD ["sh", "-c", "celery -q -A workers.celery_app inspect ping --timeout 10 --destination celery@$HOSTNAME"]

FROM base AS api
COPY --from=installed /opt/expunge /opt/expunge
ENV EXPUNGE_HOST=0.0.0.0
EXPOSE 8642
CMD ["api"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8642/healthz')"]
