# syntax=docker/dockerfile:1
ARG PYTHON=3.13

# Builds the operator's wheel and installs it, with the packages of its lock, into an environment of its own.
FROM python:${PYTHON}-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all:
WORKDIR /source
COPY requirements requirements
RUN python -m venv /build && /build/bin/pip install --no-deps --require-hashes -r requirements/build.txt
RUN python -m venv /opt/rallypoint \
    && /opt/rallypoint/bin/pip install --no-deps --require-hashes -r requirements/operator.txt
COPY . .
RUN cd deploy/operator && /build/bin/python -m hatchling build -t wheel -d /wheels \
    && /opt/rallypoint/bin/pip install --no-deps /wheels/*.whl \
    && /opt/rallypoint/bin/pip uninstall --yes pip

# Holds the interpreter and the environment only: no compiler, no pip, no shell is needed at run time.
FROM python:${PYTHON}-slim
COPY --from=build /opt/rallypoint /opt/rallypoint
ENV PATH=/opt/rallypoint/bin:$PATH PYTHONUNBUFFERED=1
# Started once, which stores the compiled form of what it imports: later its file system is read-only, and each start would
# compile it anew.
RUN /usr/local/bin/python -m pip uninstall --yes --root-user-action=ignore pip \
    && python -m controller --help > /dev/null
ENV PYTHONDONTWRITEBYTECODE=1
# A number, so that `runAsNonRoot` can be checked without reading the image's users.
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["python", "-m", "controller"]
