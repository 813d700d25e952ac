# SGLang on a CPU; sourced by engine.sh. Up in 21 to 61 s; 2.5 GB of memory.
#
# SGLang has no CPU package: its CPU kernels must be built from source. But with
# torch's own attention and without SGLANG_USE_CPU_ENGINE it takes plain torch
# paths nearly everywhere; sglang_cpu_ops.py fills the one gap. For tests only.
release=0.5.23

install_packages() {
    "$venv/bin/pip" install -qq --no-deps "sglang==$release"
    # Its requirements, less those that only a GPU, sound or video can use.
    "$venv/bin/python" - >"$venv/requirements.txt" <<'PY'
import re
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement

skip = re.compile(
    "cuda|nvidia|nvshmem|flash|quack|tilelang|humming|kernels?$|sglang-kernel|deep[-_]|"
    "torch$|torchvision|torchaudio|torchcodec|smg-grpc|modelscope|datasets|py-spy|"
    "anthropic|mathdx|torch_memory_saver"
)
for line in requires("sglang"):
    requirement = Requirement(line)
    if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
        continue
    if not skip.search(requirement.name.lower()) or requirement.name == "deepseek-recipe":
        print(str(requirement).split(";")[0])
PY
    # SGLang pins the CUDA build of torch; the CPU build takes its place.
    "$venv/bin/pip" install -qq --no-warn-conflicts -c "$constraints" \
        "torch==2.13.0+cpu" dill -r "$venv/requirements.txt"
    local site
    site=$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
    mkdir -p "$site/vllm"
    touch "$site/vllm/__init__.py"
    cp "$here/sglang_cpu_ops.py" "$site/vllm/_custom_ops.py"
    # torchvision is imported at start-up but never used for text. PyPI's is
    # linked against another torch: its Python half imports once the module
    # that describes its operators is an empty one.
    "$venv/bin/pip" install -qq --no-deps -c "$constraints" torchvision
    cat >"$site/sitecustomize.py" <<'PY'
import sys
import types

name = "torchvision._meta_registrations"
sys.modules.setdefault(name, types.ModuleType(name))
PY
}

serve_command() {
    unset SGLANG_USE_CPU_ENGINE
    command=(
        "$venv/bin/python" -W ignore -m sglang.launch_server
        --model-path "$model"
        --device cpu --attention-backend torch_native
        --sampling-backend pytorch --grammar-backend xgrammar
        --dtype float32 --context-length 8192
        --max-running-requests 8 --max-total-tokens 65536
        --mem-fraction-static 0.1 --disable-overlap-schedule --sleep-on-idle
        --enable-priority-scheduling --enable-metrics --enable-cache-report
        --tool-call-parser hermes --constrained-json-disable-any-whitespace
    )
}
