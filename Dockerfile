# syntax=docker/dockerfile:1
ARG PYTHON=3.13

# The lock of the image's packages: operator, or tracing for an operator with --tracing.
ARG LOCK=operator

# Builds the operator's wheel and installs it, with the packages of its lock, into an environment of its own.
FROM python:${PYTHON}-slim AS build
ARG LOCK
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all:
WORKDIR /source
COPY requirements requirements
RUN python -m venv /build && /build/bin/pip install --no-deps --require-hashes -r requirements/build.txt
RUN python -m venv /opt/rallypoint \
    && /opt/rallypoint/bin/pip install --no-deps --require-hashes -r requirements/${LOCK}.txt
COPY . .
RUN cd deploy/operator && /build/bin/python -m hatchling build -t wheel -d /wheels \
    && /opt/rallypoint/bin/pip install --no-deps /wheels/*.whl \
    && /opt/rallypoint/bin/pip uninstall --yes pip

# Contains the interpreter and the environment; the operator needs no compiler, pip or shell.
FROM python:${PYTHON}-slim
COPY --from=build /opt/rallypoint /opt/rallypoint
ENV PATH=/opt/rallypoint/bin:$PATH PYTHONUNBUFFERED=1
# This run stores the compiled bytecode of all imports: later the file system is read-only, and each start would compile them.
RUN /usr/local/bin/python -m pip uninstall --yes --root-user-action=ignore pip \
    && python -m controller --help > /dev/null
ENV PYTHONDONTWRITEBYTECODE=1
# docker build --build-arg COMMIT=$(git rev-parse HEAD): the log and --version name it.
ARG COMMIT=""
ENV RALLYPOINT_COMMIT=${COMMIT}
LABEL org.opencontainers.image.revision=${COMMIT}
# A number, so that `runAsNonRoot` can be checked without reading the image's users.
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["python", "-m", "controller"]
