"""The packages that the site's registries serve, made here: one library that needs another, in the forms of PyPI, npm
and Debian, and git repositories. In the layout of static files below FOLDER/site, and FOLDER/git."""

import base64
import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
import zipfile

SAYS = "hello from a package"


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def record_hash(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def make_wheel(site, name, source, needs):
    """A wheel (PEP 427) and its page of a simple index (PEP 503)."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n" +
                            "".join(f"Requires-Dist: {need}\n" for need in needs),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: bed\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{path},sha256={record_hash(text.encode())},{len(text)}\n" for path, text in files.items())
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    file, digest = f"{name}-1.0-py3-none-any.whl", hashlib.sha256(packed.getvalue()).hexdigest()
    write(f"{site}/wheels/{file}", packed.getvalue())
    write(f"{site}/simple/{name.replace('_', '-')}/index.html",
          f'<!DOCTYPE html><html><body><a href="/wheels/{file}#sha256={digest}">{file}</a></body></html>')


def make_node_package(site, name, source, needs):
    """A package and its document in npm's registry; the host in it is put in when it is served."""
    description = {"name": name, "version": "1.0.0", "main": "index.js", "dependencies": needs}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for path, text in (("package.json", json.dumps(description)), ("index.js", source)):
            entry = tarfile.TarInfo("package/" + path)
            entry.size, entry.mode = len(text), 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
    content = packed.getvalue()
    description["dist"] = {
        "tarball": f"https://@HOST@/npm/{name}/-/{name}-1.0.0.tgz", "shasum": hashlib.sha1(content).hexdigest(),
        "integrity": "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()}
    write(f"{site}/npm/{name}/-/{name}-1.0.0.tgz", content)
    write(f"{site}/npm/{name}/index.json", json.dumps(
        {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": description},
         "time": {"1.0.0": "2020-01-01T00:00:00.000Z"}}))


def make_debian_package(folder, site):
    """A flat repository (deb … /) with one package."""
    tree = folder + "/deb"
    write(tree + "/usr/share/bed-hello", SAYS)
    control = "Package: bed-hello\nVersion: 1.0\nArchitecture: all\nMaintainer: bed <bed@localhost>\nDescription: says hello\n"
    write(tree + "/DEBIAN/control", control)
    file = site + "/debian/bed-hello_1.0_all.deb"
    os.makedirs(os.path.dirname(file))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, file], check=True, capture_output=True)
    with open(file, "rb") as opened:
        content = opened.read()
    index = (control + f"Filename: bed-hello_1.0_all.deb\nSize: {len(content)}\n"
             f"SHA256: {hashlib.sha256(content).hexdigest()}\n\n").encode()
    packed = gzip.compress(index)
    write(site + "/debian/Packages.gz", packed)
    write(site + "/debian/Release", "Date: Wed, 01 Jan 2020 00:00:00 UTC\nSHA256:\n" + "".join(
        f" {hashlib.sha256(text).hexdigest()} {len(text)} {name}\n" for name, text in
        (("Packages", index), ("Packages.gz", packed))))
    write(site + "/debian/Packages", index)


def make_repository(folder, name):
    path = f"{folder}/git/{name}.git"
    subprocess.run(["/bin/sh", "-ec", """
      git init -q --bare -b main "$0"; git -C "$0" config http.receivepack true
      git clone -q "$0" "$0.work" 2>/dev/null; cd "$0.work"; git checkout -q -B main
      echo from git > file; dd if=/dev/urandom of=large bs=1M count=3 status=none; git add .
      git -c user.name=bed -c user.email=bed@localhost commit -qm first; git push -q origin main; rm -rf "$0.work" """, path],
                   check=True, env={**os.environ, "HOME": folder, "GIT_CONFIG_NOSYSTEM": "1"})


def make_large_repository(folder, megabytes):
    """Files of nothing that can be made smaller, in two commits; and a repository to push it to."""
    path = folder + "/git/large.git"
    subprocess.run(["/bin/sh", "-ec", """
      git init -q --bare -b main "$0"; git init -q --bare -b main "${0%large.git}empty.git"
      git -C "${0%large.git}empty.git" config http.receivepack true
      git init -q -b main "$0.work"; cd "$0.work"; git config core.compression 0
      for i in $(seq "$1"); do dd if=/dev/urandom of=file.$i bs=1M count=1 status=none; done
      git add .; git -c user.name=bed -c user.email=bed@localhost commit -qm large
      git push -q "$0" main; rm -rf "$0.work" """, path, str(megabytes)],
                   check=True, env={**os.environ, "HOME": folder, "GIT_CONFIG_NOSYSTEM": "1"})


def make(folder):
    site = folder + "/site"
    make_wheel(site, "bed_words", f"words = '{SAYS}'\n", [])
    make_wheel(site, "bed_hello", "import bed_words\ndef hello(): return bed_words.words\n", ["bed-words"])
    make_node_package(site, "bed-words", f"module.exports = '{SAYS}';", {})
    make_node_package(site, "bed-hello", "exports.hello = () => require('bed-words');", {"bed-words": "^1.0.0"})
    make_debian_package(folder, site)
    if os.path.exists(folder + "/large"):
        with open(folder + "/large") as file:
            make_large_repository(folder, int(file.read()))
    for way in ("proxy", "redirect", "opened"):
        make_repository(folder, way)
