"""What every llama test needs first: the server and the models. Where the packages cannot be had,
the test is skipped."""

import os
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77
# Made once, used by every build folder.
DEFAULT_FOLDER = os.path.join(SOURCE, "build", "llama")


def prepare(models, folder=None):
    """Returns the server program and a dict of name to model file; ends the process with 77 when
    there is no server."""
    folder = os.path.abspath(folder or os.environ.get("KVARVE_LLAMA_DIR") or DEFAULT_FOLDER)
    fetched = subprocess.run(
        [os.path.join(SOURCE, "tools", "fetch_llama"), folder], stdin=subprocess.DEVNULL
    )
    if fetched.returncode:
        print("SKIPPED: no llama-server on this machine, nothing was tested", flush=True)
        sys.exit(fetched.returncode)
    made = [
        sys.executable,
        os.path.join(SOURCE, "tools", "tiny_models.py"),
        f"{folder}/models",
        *models,
    ]
    subprocess.run(made, check=True, stdin=subprocess.DEVNULL)
    return f"{folder}/llama-server", {name: f"{folder}/models/{name}.gguf" for name in models}
