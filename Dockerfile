# The jail's image: what executes user and candidate code on a runner with Docker. Two targets:
#
#   docker build --target cuda -t kernelopt-bot .       (the default)
#   docker build --target cpu  -t kernelopt-bot:cpu .
#
# Bases are build arguments, recorded in the image's label. The CUDA base is pinned by its digest. Of the Python base, whose
# tag moves with Debian's updates, the release workflow resolves the digest and builds with it; a build by hand takes the tag.
ARG CUDA_BASE=nvidia/cuda:12.8.1-base-ubuntu22.04@sha256:001469ea0f3dec85a1ca929aeea3b58ae369d4c11228b10aec1f642bb6ca7a6f
ARG CPU_BASE=python:3.11-slim-bookworm

# hadolint ignore=DL3006
FROM ${CPU_BASE} AS cpu-base
ARG CPU_BASE
LABEL org.opencontainers.image.base.name="${CPU_BASE}"
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# A C++ compiler for Inductor's CPU code and Triton's launchers.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc g++ libc6-dev \
    && rm -rf /var/lib/apt/lists/*

# hadolint ignore=DL3006
FROM ${CUDA_BASE} AS cuda-base
ARG CUDA_BASE
LABEL org.opencontainers.image.base.name="${CUDA_BASE}"
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# Python 3.11 is Ubuntu 22.04's own second Python; torch brings the CUDA libraries.
# hadolint ignore=DL3008
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        gcc g++ libc6-dev python3.11 python3.11-dev python3.11-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3.11 -m venv /opt/python
ENV PATH=/opt/python/bin:${PATH} NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM cpu-base AS cpu
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /opt/kernelopt
COPY requirements.lock ./
RUN grep -E '^(torch|triton|numpy|setuptools|filelock|fsspec|jinja2|markupsafe|mpmath|networkx|sympy|typing-extensions)==' \
        requirements.lock > worker.lock \
    && pip install --no-cache-dir -r worker.lock
COPY kernelopt_bot ./kernelopt_bot
ENV PYTHONPATH=/opt/kernelopt PYTHONDONTWRITEBYTECODE=1 HOME=/scratch
USER 65534:65534
ENTRYPOINT ["python"]

FROM cuda-base AS cuda
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /opt/kernelopt
COPY requirements.lock ./
# The lock names torch by its release; `+cpu` would be the build without CUDA.
RUN grep -E '^(torch|triton|numpy|setuptools|filelock|fsspec|jinja2|markupsafe|mpmath|networkx|sympy|typing-extensions)==' \
        requirements.lock | sed 's/+cpu$//' > worker.lock \
    && pip install --no-cache-dir -r worker.lock
COPY kernelopt_bot ./kernelopt_bot
ENV PYTHONPATH=/opt/kernelopt PYTHONDONTWRITEBYTECODE=1 HOME=/scratch
USER 65534:65534
ENTRYPOINT ["python"]
