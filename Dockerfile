# Relay and connector on one machine. `docs/operators.md` says how it is run.

FROM python:3.13-slim AS build

WORKDIR /app
COPY requirements.lock ./
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check \
        --require-hashes --only-binary=:all: --requirement requirements.lock \
    && /opt/venv/bin/pip uninstall --quiet --yes pip

COPY layers/farthing/python/ layers/farthing/python/
COPY functions/ functions/
COPY infra/__init__.py infra/
COPY infra/local/ infra/local/
COPY infra/web/ infra/web/
COPY infra/public/healthcheck.py ./
# Compiled here: the running container cannot write to its code.
RUN python -m compileall -q --invalidation-mode unchecked-hash /app


FROM python:3.13-slim

# COPY would not keep the mode of an empty folder.
RUN install --directory --owner=10001 --group=10001 --mode=0700 /data
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app

ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/app/layers/farthing/python:/app \
    PYTHONUNBUFFERED=1 \
    HOME=/data \
    FARTHING_DATA=/data \
    FARTHING_HOST=0.0.0.0 \
    FARTHING_PORT=7777

WORKDIR /app
USER 10001:10001
VOLUME /data
EXPOSE 7777
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 CMD ["python", "/app/healthcheck.py"]
CMD ["python", "-m", "infra.local", "run"]
