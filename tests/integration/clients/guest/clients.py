"""clients.py TREE [CLIENT…]: runs in the guest as root, with the tree's programs beneath /usr. One client of the network
after another, as the guest's user, in three ways, and says of each whether it saw what it was to see: a line of JSON each.
In the third the connection is opened and the site wants a credential, of which the client has the session's token only;
at the end the secrets ($LOOK_FOR, each backwards) are looked for in all of the guest."""

import concurrent.futures
import json
import os
import subprocess
import sys
import time

TREE = sys.argv[1]
HERE = os.path.dirname(os.path.abspath(__file__))
USER = 1000
# The environment that the agent gives, and none at all.
GIVEN = {**os.environ, "HOME": "/home/anchorhold", "USER": "anchorhold"}
BARE = {"PATH": os.environ["PATH"], "HOME": "/home/anchorhold", "LANG": "C.UTF-8"}
TOKEN = os.environ.get("ANCHORHOLD_TOKEN", "")
WAYS = {"proxy": ("site.test", GIVEN), "redirect": ("site.test", BARE), "opened": ("open.test", {**GIVEN, "T": TOKEN})}
GREETING = "hello from outside"
PACKAGE = "hello from a package"
NODE_HEADERS = "{headers: process.argv[2] ? {authorization: process.argv[2]} : {}}"
PYTHON = "python3 " + HERE + "/python_clients.py"

# Name, command of a shell, what it is to print, all of it in this order, and the kind of credential if it is none of the
# usual kind. $H is the site, $W a folder of its own, $T the token in the third way.
CLIENTS = [
    ("npm", 'mkdir $W/n && cd $W/n && echo "${T:+//$H/npm/:_authToken=$T}" > .npmrc && npm install --no-audit --no-fund '
            '--no-update-notifier --ignore-scripts --no-progress --loglevel=error --cache=$W/c '
            '--registry=https://$H/npm/ bed-hello && node -e "console.log(require(\'bed-hello\').hello())"', [PACKAGE]),
    ("pnpm", 'mkdir $W/n && cd $W/n && echo "${T:+//$H/npm/:_authToken=$T}" > .npmrc && XDG_DATA_HOME=$W pnpm install --silent '
             '--dir $W/n --store-dir $W/s --registry=https://$H/npm/ bed-hello && '
             'node -e "console.log(require(\'bed-hello\').hello())"', [PACKAGE]),
    ("Java", 'java -Xint -cp /usr/share/java-client Client https://$H/hello ${T:+"Bearer $T"}',
     ["connection " + GREETING, "HTTP_2 " + GREETING]),
    ("pip", "pip install -q --no-cache-dir --no-compile --disable-pip-version-check --target $W/p "
            "--index-url https://${T:+guest:$T@}$H/simple/ bed-hello && "
            "PYTHONPATH=$W/p python3 -c 'import bed_hello; print(bed_hello.hello())'", [PACKAGE], "basic"),
    ("git clone, push and fetch",
     "git clone -q https://$H/git/$WAY.git $W/a && git clone -q https://$H/git/$WAY.git $W/b && cd $W/a && "
     "cat file && git checkout -q -b more && head -c 2000000 /dev/urandom > big && git add big && "
     "git -c user.name=g -c user.email=g@localhost commit -qm more && git push -q origin more && cd $W/b && "
     "git fetch -q && git log -1 --format=fetched-%s origin/more", ["from git", "fetched-more"], "git"),
    ("apt", "mkdir -p $W/etc/preferences.d $W/etc/apt.conf.d $W/state/lists/partial $W/cache/archives/partial && cd $W && "
            "echo \"${T:+machine $H login guest password $T}\" > etc/auth.conf && "
            "echo \"deb [trusted=yes] https://$H/debian /\" > etc/sources.list && touch state/status && "
            "o=\"-qq -o Dir::Etc=$W/etc -o Dir::State=$W/state -o Dir::Cache=$W/cache -o Dir::State::status=$W/state/status "
            "-o APT::Sandbox::User=\" && apt-get $o update && apt-get $o download bed-hello && "
            "dpkg-deb --fsys-tarfile bed-hello_1.0_all.deb | tar -xO ./usr/share/bed-hello", [PACKAGE], "basic"),
    ("Node fetch", "node -e 'fetch(process.argv[1], " + NODE_HEADERS + ").then(r => r.text()).then(console.log)' "
                   "https://$H/hello ${T:+\"Bearer $T\"}", [GREETING]),
    ("Node undici", "NODE_PATH=/usr/lib/node_modules node -e 'const u = require(\"undici\"); "
                    "u.setGlobalDispatcher(new u.EnvHttpProxyAgent()); "
                    "u.request(process.argv[1], " + NODE_HEADERS + ").then(r => r.body.text()).then(console.log)' "
                    "https://$H/hello ${T:+\"Bearer $T\"}", [GREETING]),
    ("Python aiohttp, with WebSocket", PYTHON + " aiohttp $H $T", [GREETING, "echo ping"]),
    ("Python httpx, HTTP/2", PYTHON + " httpx $H $T", ["HTTP/2 " + GREETING]),
    ("Python requests", PYTHON + " requests $H $T", [GREETING]),
    ("Python urllib", PYTHON + " urllib $H $T", [GREETING]),
    ("Python websockets", PYTHON + " websockets $H $T", ["echo ping"]),
    ("gRPC (Python)", PYTHON + " grpc $H $T", ["hello guest", "the call", "guest 0", "guest 2"]),
    ("Go", 'go-client https://$H/hello ${T:+"Bearer $T"}', ["HTTP/2.0 " + GREETING]),
    ("wget", "w() { wget -qO- ${T:+--user=guest --password=$T} \"$@\"; }; w https://$H/hello; w https://$H/redirect",
     [GREETING, GREETING], "basic"),
    ("OpenSSL s_client",
     "(printf \"GET /hello HTTP/1.1\\r\\nHost: $H\\r\\n${T:+Authorization: Bearer $T\\r\\n}Connection: close\\r\\n\\r\\n\"; sleep 1) | "
     "openssl s_client -quiet -verify_return_error ${https_proxy:+-proxy ${https_proxy#http://}} -connect $H:443 "
     "-servername $H 2>&1", [GREETING]),
    # Knows no proxy, and -b is the module of authorities; with a pipe for its input it never ends.
    ("NSS (tstclnt)", "certutil -N -d sql:$W --empty-password && "
     "printf \"GET /hello HTTP/1.1\\r\\nHost: $H\\r\\n${T:+Authorization: Bearer $T\\r\\n}Connection: close\\r\\n\\r\\n\" > $W/request && "
     "tstclnt -b -d sql:$W -h $H -p 443 < $W/request 2>&1", [GREETING]),
    ("curl, HTTP/1.1", "curl -sS --http1.1 ${T:+-u guest:$T} -w '%{http_version}' https://$H/hello; "
                       "curl -sS ${T:+-u guest:$T} http${T:+s}://$H/hello", [GREETING, "1.1", GREETING], "basic"),
    ("curl, HTTP/2", 'curl -sS --http2 ${T:+-H "Authorization: Bearer $T"} -w "%{http_version}" https://$H/hello', [GREETING, "2"]),
    ("curl: events, trailers, chunked upload, redirect, 100-continue",
     "c() { curl -sS ${T:+-H \"X-Api-Key: $T\"} \"$@\"; }; c -N --http1.1 https://$H/events; c --http1.1 https://$H/trailers -D -; "
     "head -c 300000 /dev/zero | c --http1.1 -T - https://$H/size; c -L https://$H/redirect; "
     "head -c 300000 /dev/zero | c --http1.1 -H 'Expect: 100-continue' --data-binary @- https://$H/size",
     ["data: 0", "data: 2", "hello from outside", "X-After: the body", "300000 bytes", GREETING, "300000 bytes"], "header"),
    # By IPv6, which goes past the proxy whatever the variables say.
    ("curl, IPv6 alone", "curl -6 -sS --noproxy '*' ${T:+-H \"Authorization: Bearer $T\"} -w ' to %{remote_ip}' https://$H/hello",
     [GREETING, "to fd61:"]),
    ("Python, IPv6 alone", PYTHON + " six $H $T", ["family AF_INET6", GREETING]),
    ("Node, IPv6 alone and both at once",
     "node -e 'const get = options => new Promise(done => require(\"https\").get({host: process.argv[1], path: \"/hello\", "
     "...options, headers: process.argv[2] ? {authorization: process.argv[2]} : {}}, answer => {const by = answer.socket.remoteFamily; "
     "answer.on(\"data\", text => console.log(by + \" \" + text)).on(\"end\", done)})); "
     "get({family: 6}).then(() => get({autoSelectFamily: true}))' $H ${T:+\"Bearer $T\"}",
     ["IPv6 " + GREETING, " " + GREETING]),
    ("who vouches", "openssl s_client ${https_proxy:+-proxy ${https_proxy#http://}} -connect $H:443 -servername $H "
                    "< /dev/null 2>/dev/null | openssl x509 -noout -issuer", None),
    # What must not work, and say so soon.
    ("ssh is refused at once", "timeout 60 ssh -o BatchMode=yes -o StrictHostKeyChecking=no git@$H true 2>&1; echo status $?",
     ["status 255"]),
    ("ping goes nowhere", "ping -c 1 -W 1 $H 2>&1; ping -c 1 -W 1 44.128.0.2 2>&1; ping -6 -c 1 -W 1 2a0f:ac00::2 2>&1",
     ["100% packet loss"] * 3),
    ("dig and nslookup ask nobody",
     "dig +short +time=5 @44.128.0.53 secret1.leak.test; dig +short +tcp +time=5 @44.128.0.53 secret2.leak.test; "
     "dig +short +time=5 @2a0f:ac00::53 AAAA secret5.leak.test; "
     "dig +time=5 @44.128.0.53 TXT secret3.leak.test | grep -o 'ANSWER: .'; nslookup secret4.leak.test 44.128.0.53",
     ["198.1", "198.1", "fd61:", "ANSWER: 0", "198.1"]),
]

AS_ROOT = {"ping goes nowhere"}  # who else could not send anything


def run(way, client):
    name, command, expected, *kind = client
    host, environment = WAYS[way]
    if way == "opened":
        host = (kind[0] if kind else "bearer") + "." + host
    user = 0 if name in AS_ROOT else USER
    folder = f"/tmp/{way}-{CLIENTS.index(client)}"
    os.mkdir(folder)
    os.chown(folder, USER, USER)
    started = time.monotonic()
    try:
        done = subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", user=user, group=user, extra_groups=[], cwd=folder, timeout=280,
                              env={**environment, "H": host, "W": folder, "WAY": way})
        output, errors = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        output, errors = str(late.stdout), f"not done after {late.timeout} s"
    at = 0
    for text in expected or []:
        at = output.find(text, at)
        if at < 0:
            break
        at += len(text)
    print(json.dumps({"client": name, "way": way, "works": at >= 0, "seconds": round(time.monotonic() - started, 1),
                      "output": output[-2000:], "errors": errors[-2000:]}), flush=True)


subprocess.run(["cp", "-r", TREE + "/usr/share/java-client/etc", "/etc/java-17-openjdk"], check=True)
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    only = sys.argv[2:]
    for result in [pool.submit(run, way, client) for client in CLIENTS for way in WAYS
                   if not only or any(client[0].startswith(word) for word in only)]:
        result.result()
if not only:
    looked = subprocess.run(["python3", "/mnt/look.py/look.py", *os.environ["LOOK_FOR"].split()], capture_output=True, text=True)
    print(json.dumps({"client": "secrets in the guest", "way": "opened", "output": looked.stdout, "errors": looked.stderr,
                      "works": looked.stdout == "found 0 in much\n"}), flush=True)
