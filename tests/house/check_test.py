#!/usr/bin/env python3
"""The check itself is checked: a small house with one fault of each kind must be refused, naming it."""
import os
import subprocess
import sys
import tempfile

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check.py")
GOOD = {
    "base/README.md": "# base\n", "base/include/base/error.h": "#pragma once\n",
    "vsock/README.md": "# vsock\n", "vsock/src/device.cpp": '#include "base/error.h"\n',
}
CASES = [
    ("base/src/x.cpp", '#include "vsock/device.h"\n', "base may not use vsock"),
    ("host/agent/src/x.cpp", '#include "session/session.h"\n', "host/agent may not use session"),
    ("hypervisor/libvirt/x.cpp", '#include "mounts/share.h"\n', "hypervisor may not use mounts"),
    ("vsock/CMakeLists.txt", "target_link_libraries(anchorhold_vsock PUBLIC anchorhold_hypervisor)\n", "may not link anchorhold_hypervisor"),
    ("host/cli/src/x.cpp", "grpc::CreateInsecureChannelFromFd(1);\n", "only vsock turns a descriptor"),
    ("host/cli/src/x.cpp", "#include <libvirt/libvirt.h>\n", "only the libvirt backend"),
    ("base/src/x.cpp", "// TO" + "DO: later\n", "is finished"),
    ("elsewhere/x.cpp", "int x;\n", "belongs to no room"),
    ("images/src/x.cpp", "int x;\n", "every room has a README"),
    ("base/README.md", "line\n" * 31, "longer than 30 lines"),
    ("docs/x.md", "see [this](missing.md)\n", "links to missing.md"),
    ("docs/x.md", "run `tools/missing`\n", "names tools/missing"),
    ("docs/x.md", "`anchorhold nonsense`\n", "names the command"),
    ("docs/x.md", "```\nanchorhold run --nonsense -- ls\n```\n", "names the option --nonsense"),
]
FAKE_PROGRAM = '#!/bin/sh\n[ "$1" = run ] || exit 1\necho "run: --ro --rw"\n'


def run(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w") as out:
                out.write(text)
        program = os.path.join(root, "build-anchorhold")
        with open(program, "w") as out:
            out.write(FAKE_PROGRAM)
        os.chmod(program, 0o755)
        done = subprocess.run([sys.executable, CHECK, root, program], capture_output=True, text=True)
        return done.returncode, done.stdout


status, text = run(GOOD | {"docs/good.md": "`anchorhold run --ro x -- ls`\n"})
assert status == 0, text
for path, content, expected in CASES:
    status, text = run(GOOD | {path: content})
    assert status == 1 and expected in text, f"{path}: expected a fault with '{expected}', got {status}:\n{text}"
print(f"{len(CASES)} kinds of fault are found")
