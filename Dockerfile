# syntax=docker/dockerfile:1
ARG PYTHON=3.13

# Builds this project's wheel and installs it, with the locked packages, into an environment of its own.
FROM python:${PYTHON}-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
COPY requirements requirements
RUN python -m venv /build && /build/bin/pip install --no-deps --require-hashes -r requirements/build.txt
RUN python -m venv /opt/rallypoint \
    && /opt/rallypoint/bin/pip install --no-deps --require-hashes -r requirements/runtime.txt
COPY . .
RUN /build/bin/python -m hatchling build -t wheel -d /wheels \
    && /opt/rallypoint/bin/pip install --no-deps /wheels/*.whl \
    && /opt/rallypoint/bin/pip uninstall --yes pip

# Holds the interpreter and the environment only: no compiler, no pip, no shell is needed at run time.
FROM python:${PYTHON}-slim
COPY --from=build /opt/rallypoint /opt/rallypoint
ENV PATH=/opt/rallypoint/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# A number, so that `runAsNonRoot` can be checked without reading the image's users.
USER 65532:65532
ENTRYPOINT ["python", "-m", "controller"]
