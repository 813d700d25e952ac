"""The interpreter that the gateway is measured under: a release build, as the compiled peers are.

CPython as distributions and container images ship it is built with profile-guided optimisation; one that a version manager compiled on this
machine often is not, and costs a tenth more CPU. Where this process runs under such a one, and the distribution has the same version, the gateway
runs under the distribution's, with the same packages; the table says which.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

_ASK = "import platform, sys; print(platform.python_version())"


@cache
def release_python(home: Path) -> tuple[str, str]:
    """Its path, and what the table says of it. `home` is where an environment for it may be made."""
    own = f"CPython {sys.version.split()[0]}"
    if _is_optimised():
        return sys.executable, own
    system = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    if not system.exists():
        return sys.executable, f"{own}, built without profile-guided optimisation"
    python = home / "release-python" / "bin" / "python"
    if not python.exists():
        argv = [str(system), "-m", "venv", "--without-pip", str(python.parent.parent)]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)
    packages = next((python.parent.parent / "lib").glob("python*/site-packages"))
    root = Path(__file__).resolve().parents[2]
    (packages / "headrace.pth").write_text(f"{sysconfig.get_path('purelib')}\n{root}\n")
    number = subprocess.run([python, "-c", _ASK], check=True, capture_output=True, text=True).stdout.strip()
    return str(python), f"the distribution's CPython {number}, an optimised build"


def _is_optimised() -> bool:
    if Path(sys.base_prefix) == Path("/usr"):
        return True
    return "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
