# The pinned environment, for a processor or (TORCH=cu...) a GPU:  docker build -t cfaug . && docker run --rm -v "$PWD:/data" cfaug doctor
FROM python:3.11-slim
RUN apt-get update -qq && apt-get install -qq --no-install-recommends make && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/cfaug
COPY . .
ARG TORCH=cpu
RUN make env TORCH=$TORCH
ENV PATH=/opt/cfaug/.venv/bin:$PATH
WORKDIR /data
ENTRYPOINT ["cfaug"]
