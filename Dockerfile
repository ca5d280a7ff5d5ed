# netdoctor in a container: docker build -t netdoctor .
#
# The container logs in to the nodes with your own keys. Mount them read-only; they are never copied into the image:
#
#   docker run --rm --network host -v ~/.ssh:/home/netdoctor/.ssh:ro -v "$PWD":/work -w /work \
#     --user "$(id -u):$(id -g)" -e USER="$USER" netdoctor scan hosts.txt
#
# Key files are mode 0600 and belong to you: without --user nobody in there can read them, nor the ssh config. Reports are
# saved under your name then, too. docs/container.md has the rest: agents, jump hosts, the TUI.

FROM python:3.12-slim AS build
COPY . /src
RUN sh /src/scripts/docker-install.sh build /src /wheels

FROM python:3.12-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends openssh-client \
    && rm -rf /var/lib/apt/lists/*
COPY scripts/docker-install.sh /tmp/docker-install.sh
COPY --from=build /wheels /tmp/wheels
RUN sh /tmp/docker-install.sh install /tmp/wheels \
    && rm -rf /tmp/wheels /tmp/docker-install.sh
# HOME can be entered by any uid, for --user; it holds nothing but what is mounted there.
RUN useradd --uid 10001 --create-home --home-dir /home/netdoctor netdoctor \
    && chmod 0755 /home/netdoctor
ENV HOME=/home/netdoctor
USER 10001
WORKDIR /work
ENTRYPOINT ["netdoctor"]
