"""An authority in FOLDER/ca.pem, and certificates of sites: a good one, one that has expired, one for another name."""

import subprocess

GOOD = "DNS:site.test,DNS:*.site.test,DNS:open.test,DNS:*.open.test,DNS:credential.test,DNS:other.test"


class Certificates:
    def __init__(self, folder):
        self.folder = folder
        self.openssl("req", "-x509", *self.new_key("ca"), "-subj", "/CN=Authority of the bed", "-days", "30",
                     "-addext", "keyUsage=critical,keyCertSign", "-out", self.path("ca", "pem"))
        self.make("good", GOOD, "10")
        self.make("expired", GOOD, "-1")
        self.make("wrong", "DNS:somebody.test", "10")

    def path(self, name, kind):
        return f"{self.folder}/{name}.{kind}"

    def read(self, name):
        with open(self.path(name, "key"), "rb") as key, open(self.path(name, "pem"), "rb") as chain:
            return key.read(), chain.read()

    def new_key(self, name):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.path(name, "key")]

    def make(self, name, names, days):
        self.openssl("req", *self.new_key(name), "-subj", "/CN=site", "-out", self.path(name, "request"))
        with open(self.path(name, "extensions"), "w") as extensions:
            extensions.write(f"subjectAltName={names}\nextendedKeyUsage=serverAuth\n")
        self.openssl("x509", "-req", "-in", self.path(name, "request"), "-CA", self.path("ca", "pem"), "-CAkey",
                     self.path("ca", "key"), "-CAcreateserial", "-days", days, "-extfile", self.path(name, "extensions"),
                     "-out", self.path(name, "pem"))

    @staticmethod
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True)
