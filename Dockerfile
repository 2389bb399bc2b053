# The jail's image: what executes user and candidate code on a runner with Docker. CPU build; the CUDA variant is made
# by passing a CUDA runtime image as BASE and the CUDA build of torch as an index of your own.
ARG BASE=python:3.11-slim-bookworm
# hadolint ignore=DL3006
FROM ${BASE}

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# A C++ compiler for Inductor's CPU code and Triton's launchers.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc g++ libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/kernelopt
COPY requirements.lock ./
RUN grep -E '^(torch|triton|numpy|setuptools|filelock|fsspec|jinja2|markupsafe|mpmath|networkx|sympy|typing-extensions)==' \
        requirements.lock > worker.lock \
    && pip install --no-cache-dir -r worker.lock
COPY kernelopt_bot ./kernelopt_bot

ENV PYTHONPATH=/opt/kernelopt PYTHONDONTWRITEBYTECODE=1 HOME=/scratch
USER 65534:65534
ENTRYPOINT ["python"]
