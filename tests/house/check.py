#!/usr/bin/env python3
"""Checks that the house is built as docs/architecture.md says.

Dependency directions (by every #include and every linked target), fences (what only one room may do), READMEs, and that
paths and commands named in documents exist. Usage: check.py ROOT [ANCHORHOLD_PROGRAM]; prints each fault, exits 1 if any.
"""
import os
import re
import subprocess
import sys

# A room and the rooms whose headers it may include. Longest matching folder wins.
MAY_USE = {
    "base": set(),
    "proto": set(),
    "vsock": {"base", "proto"},
    "images": {"base"},
    "hypervisor": {"base", "images", "vsock"},
    "guest-agent": {"base", "proto", "vsock"},
    "host/database": {"base"},
    "host/policy": {"base"},
    "host/vault": {"base"},
    "host/events": {"base", "database"},
    "host/egress": {"base", "policy", "events"},
    "host/mounts": {"base", "vsock", "events", "database"},
    "host/agent": {"base", "events", "database"},
    "host/session": {"base", "proto", "vsock", "images", "hypervisor", "events", "mounts", "agent", "database", "egress", "policy", "vault"},
    "host/cli": {"base", "vsock", "images", "hypervisor", "events", "mounts", "agent", "session", "egress", "policy", "vault"},
}
HEADER_ROOM = {  # first folder of an include path -> the room it belongs to
    "base": "base", "proto": "proto", "vsock": "vsock", "images": "images", "hypervisor": "hypervisor",
    "guest_agent": "guest-agent", "guest-agent": "guest-agent", "events": "events", "mounts": "mounts",
    "agent": "agent", "session": "session", "cli": "cli", "policy": "policy", "vault": "vault", "egress": "egress", "database": "database",
}
TARGET_ROOM = {
    "anchorhold_base": "base", "anchorhold_secret": "base", "anchorhold_proto": "proto", "anchorhold_vsock": "vsock",
    "anchorhold_vsock_channel": "vsock", "anchorhold_images": "images", "anchorhold_hypervisor": "hypervisor",
    "anchorhold_guest": "guest-agent", "anchorhold_events": "events", "anchorhold_mounts": "mounts",
    "anchorhold_agent": "agent", "anchorhold_session": "session", "anchorhold_guest_client": "session",
    "anchorhold_cli": "cli", "anchorhold_policy": "policy", "anchorhold_vault": "vault", "anchorhold_egress": "egress",
    "anchorhold_egress_door": "egress", "anchorhold_egress_fetch": "egress", "anchorhold_fetch_core": "egress", "anchorhold_egressd": "egress", "anchorhold_database": "database",
}
# (pattern, where it is allowed, why)
FENCES = [
    (r"Create(Custom)?InsecureChannelFromFd|AddInsecureChannelFromFd", ["vsock/"], "only vsock turns a descriptor into a gRPC channel"),
    (r"#include <libvirt/", ["hypervisor/libvirt/"], "only the libvirt backend knows libvirt"),
    (r"#include <libsecret/", ["host/vault/src/"], "only the vault knows the Secret Service"),
    (r"#include <Q[A-Z]", ["ui/"], "only ui knows Qt"),
    (r"\bVerifiedImage\s*\(", ["images/"], "a VerifiedImage is made by verification only"),
    (r"#include [<\"]tests/|#include \"fakes/", ["tests/"], "the product does not know its tests"),
    (r"\bstd::regex\b", [], "std::regex recurses on its input"),
    (r"\b(std::system|popen)\(", [], "no shell between us and a program"),
    (r"absl/", ["guest-agent/src/", "host/session/src/", "vsock/src/"], "absl stays out of our headers"),
]
EXTERNAL_HEADERS_FORBIDDEN = re.compile(r"#include <(grpcpp|google/protobuf|libvirt|sqlite3|curl|absl)")
COMMENT_WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")

faults = []


def fault(where, text):
    faults.append(f"{where}: {text}")


def tracked(root):
    out = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True)
    if out.returncode == 0 and out.stdout:
        return [p for p in out.stdout.splitlines() if os.path.isfile(os.path.join(root, p))]
    found = []
    for folder, dirs, files in os.walk(root):
        dirs[:] = [d for d in dirs if d not in ("build", ".git", "node_modules")]
        found += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return found


def room_of(path):
    matches = [room for room in MAY_USE if path.startswith(room + "/")]
    return max(matches, key=len) if matches else None


def check_sources(root, files):
    for path in files:
        if not path.endswith((".h", ".cpp")):
            continue
        text = open(os.path.join(root, path), encoding="utf-8").read()
        room = room_of(path)
        product = not path.startswith("tests/")
        if product and room is None and not path.startswith("tools/"):
            fault(path, "belongs to no room (docs/architecture.md)")
        if room:
            short = room.split("/")[-1]
            for number, line in enumerate(text.splitlines(), 1):
                match = re.match(r'\s*#include "([^"/]+)/', line)
                if not match or match[1] not in HEADER_ROOM:
                    continue
                used = HEADER_ROOM[match[1]]
                if used != short and used not in MAY_USE[room]:
                    fault(f"{path}:{number}", f"{room} may not use {used}")
        for pattern, allowed, why in FENCES:
            if product and re.search(pattern, text) and not any(path.startswith(a) for a in allowed):
                fault(path, why)
        if "/include/" in path and EXTERNAL_HEADERS_FORBIDDEN.search(text) and not path.endswith("vsock/channel.h"):
            fault(path, "a public header exposes a library that callers must not need")
        if product and COMMENT_WORDS.search(text):
            fault(path, "unfinished work is not marked, it is finished")


def check_links(root, files):
    for path in files:
        if os.path.basename(path) != "CMakeLists.txt" or path.startswith("tests/"):
            continue
        room = room_of(path)
        if not room:
            continue
        for target in re.findall(r"\banchorhold_[a-z_]+\b", open(os.path.join(root, path)).read()):
            used = TARGET_ROOM.get(target)
            if used and used != room.split("/")[-1] and used not in MAY_USE[room]:
                fault(path, f"{room} may not link {target}")


def check_readmes(root, files):
    for room in list(MAY_USE) + ["host", "tests", "packaging"]:
        path = f"{room}/README.md"
        if not any(f.startswith(room + "/") for f in files):
            continue
        if path not in files:
            fault(path, "every room has a README: job, may use, must not use, start reading at")
        elif len(open(os.path.join(root, path)).read().splitlines()) > 30:
            fault(path, "is longer than 30 lines")


def check_documents(root, files, program):
    help_of = {}
    for path in files:
        if not path.endswith(".md") or path.startswith("tests/fuzz/") or "/demo/" in path:
            continue
        folder = os.path.dirname(path)
        text = open(os.path.join(root, path), encoding="utf-8").read()
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            if "://" not in target and not os.path.exists(os.path.join(root, folder, target)):
                fault(path, f"links to {target}, which does not exist")
        for word in re.findall(r"`([^`\n]+)`", text):
            first = word.split()[0]
            if re.fullmatch(r"(\.ci|tools|docs|tests|base|proto|vsock|images|hypervisor|host|guest-agent|packaging|cmake)/[\w./-]+", first):
                places = [os.path.join(root, first), os.path.join(root, folder, first)]
                places += [os.path.join(root, room, "include", first) for room in MAY_USE]
                if not any(os.path.exists(place) for place in places):
                    fault(path, f"names {first}, which does not exist")
        if program:
            for block in re.findall(r"`(anchorhold [^`]+)`", text) + [
                line.strip() for fence in re.findall(r"```[a-z]*\n(.*?)```", text, re.S) for line in fence.splitlines()
                if line.strip().startswith(("anchorhold ", "tools/run "))]:
                check_command(path, re.sub(r"^tools/run ", "anchorhold ", block), program, help_of)


def check_command(path, command, program, help_of):
    words = re.split(r"\s+", command.split(" -- ")[0].split(" #")[0])[1:]
    chain = []
    for word in words:
        if not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        chain.append(word)
    while chain:
        key = tuple(chain)
        if key not in help_of:
            done = subprocess.run([program, *chain, "--help"], capture_output=True, text=True)
            help_of[key] = done.stdout if done.returncode == 0 else None
        if help_of[key] is not None or len(chain) == 1:
            break
        chain.pop()  # the last word was an argument
    text = help_of.get(tuple(chain)) if chain else None
    if chain and text is None:
        fault(path, f"names the command `{command}`, which does not exist")
        return
    if text:
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", command.split(" -- ")[0]):
            if option not in text:
                fault(path, f"names the option {option} of `anchorhold {' '.join(chain)}`, which does not exist")


def main():
    root = sys.argv[1]
    program = sys.argv[2] if len(sys.argv) > 2 else None
    files = tracked(root)
    check_sources(root, files)
    check_links(root, files)
    check_readmes(root, files)
    check_documents(root, files, program)
    for text in sorted(set(faults)):
        print(text)
    print(f"{len(files)} files read, {len(set(faults))} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
