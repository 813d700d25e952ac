#!/usr/bin/env bash
# A real engine's OpenAI server on a machine without a GPU, with a tiny model
# of random weights that is built on the spot. Nothing comes from a model hub.
#
#   engine.sh vllm|sglang install                  environment and model, then exit
#   engine.sh vllm|sglang serve PORT [NAME] [ARG…] the same, then become the server
#                                                  (model name NAME, default tiny;
#                                                  ARGs go to the engine as they are)
#   engine.sh vllm|sglang check PORT [SECONDS] [PID]
#                                                  wait for /health (default 180 s);
#                                                  give up at once when PID is gone
#
# Every step can be repeated: a finished install takes well under a second, and
# a changed list of releases installs anew. README.md says how to stop a server.
#
# Environment:
#   ENGINE_HOME      where environments and model go (default .engines/ in the
#                    repository's root; 3 GB per engine)
#   ENGINE_PYTHON    interpreter of the environments (default python3; 3.11 tested)
#   OMP_NUM_THREADS  threads of the engine (default 1, so that a test on a small
#                    machine keeps a core for itself)
#   VLLM_KV_BLOCKS   vLLM's KV cache in blocks of 32 tokens (default 2048: eight
#                    full contexts; at least 257; fewer blocks = preemptions)
# pip must find the CPU build of torch 2.13.0; where it does not by itself,
# PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL tells it where to look.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage() {
    sed -n '2,/^set -/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
}

case ${1:-} in
vllm | sglang) engine=$1 ;;
*) usage ;;
esac
# Defines: release, install_packages, serve_command.
# shellcheck source=/dev/null
source "$here/$engine.sh"

home=${ENGINE_HOME:-$here/../../.engines}
mkdir -p "$home"
home=$(cd "$home" && pwd)
venv=$home/$engine-$release
model=$home/tiny-llama
constraints=$here/constraints-$engine-$release.txt

# Offline in earnest: no hub, no usage reports.
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# Else vLLM's first request for logprobs waits half a minute for a compiler.
export TORCH_COMPILE_DISABLE=1
export PIP_DISABLE_PIP_VERSION_CHECK=1
# Most modules are never imported: Python compiles those that are, on first use.
export PIP_COMPILE=0

# The stamp is a digest of everything the result depends on.
built() { [ "$(cat "$1" 2>/dev/null)" = "$2" ]; }

install_engine() {
    local digest
    digest=$(cat "$here/$engine"[._]* "$constraints" | sha256sum | cut -d' ' -f1)
    built "$venv/.built-by" "$digest" && return
    echo "installing $engine $release into $venv (2 to 3 minutes)" >&2
    rm -rf "$venv"
    "${ENGINE_PYTHON:-python3}" -m venv "$venv"
    install_packages
    echo "$digest" >"$venv/.built-by"
}

install_model() {
    local digest
    digest=$(sha256sum "$here/make_tiny_model.py" | cut -d' ' -f1)
    built "$model/.built-by" "$digest" && return
    rm -rf "$model"
    "$venv/bin/python" "$here/make_tiny_model.py" "$model"
    echo "$digest" >"$model/.built-by"
}

explain_failure() {
    [ "$1" = 0 ] && return
    echo "installing $engine $release failed (status $1). If pip found no package above, it looks in the wrong" >&2
    echo "place: set PIP_INDEX_URL, or PIP_FIND_LINKS / PIP_EXTRA_INDEX_URL for torch's CPU build. All releases: $constraints" >&2
}

install() {
    (
        trap 'explain_failure $?' EXIT
        flock 9 # two test runs may ask at once
        install_engine
        install_model
    ) 9>"$home/.lock"
}

serve() {
    [ $# -ge 1 ] || usage
    local port=$1 name=${2:-tiny}
    shift $(($# < 2 ? $# : 2))
    install
    serve_command
    exec "${command[@]}" --served-model-name "$name" --host 127.0.0.1 --port "$port" "$@"
}

check() {
    [ $# -ge 1 ] || usage
    local port=$1 limit=${2:-180} pid=${3:-} start=$SECONDS
    # SGLang's /health generates a token and takes a second at least.
    until curl -sf -o /dev/null --max-time 5 "http://127.0.0.1:$port/health"; do
        if ((SECONDS - start >= limit)); then
            echo "no healthy server on port $port after $limit s" >&2
            return 1
        fi
        if [ -n "$pid" ] && ! kill -0 "$pid" 2>/dev/null; then
            echo "the server (pid $pid) has ended" >&2
            return 1
        fi
        sleep 0.5
    done
    echo "healthy on port $port after $((SECONDS - start)) s"
}

case ${2:-} in
install | serve | check) "${@:2}" ;;
*) usage ;;
esac
