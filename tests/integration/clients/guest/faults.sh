#!/bin/bash
# faults.sh BYTES: runs in the guest as root; prints one line "NAME: RESULT" for each fault. Where it says "now", the host
# does or looks at something and sends a line.
bytes=$1
try() { printf '%s: %s\n' "$1" "$("${@:2}" 2>&1 | tr '\n' ' ')"; }
now() { echo "now $1"; read -r _; }
code() { curl -s --http1.1 -o /dev/null -w '%{http_code}' "$@"; echo " exit $?"; }
with_clock() { date -s "@$(($(date +%s) + $1 * 3600))" > /dev/null; curl -sS https://open.test/hello; date -s "@$(($(date +%s) - $1 * 3600))" > /dev/null; }
many='import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (65536, 65536))
def dial(i):
    if i % 2: s = socket.create_connection(("127.0.0.1", 1080))
    else:
        s = socket.socket(socket.AF_VSOCK); s.connect((2, 1080))
    s.sendall(b"CONNECT site.test:80 HTTP/1.1\r\n" if len(sys.argv) > 2 else b"CONNECT site.test:80 HTTP/1.1\r\nHost: site.test:80\r\n\r\n")
    if len(sys.argv) == 2: assert s.recv(12) == b"HTTP/1.1 200"
    return s
held = [dial(i) for i in range(int(sys.argv[1]))]
print("opened", flush=True); sys.stdin.readline()'
unread='import socket, sys
held = []
for i in range(40):
    s = socket.create_connection(("127.0.0.1", 1080)); held.append(s)
    s.sendall(b"GET http://site.test/large?1000000000 HTTP/1.1\r\nHost: site.test\r\n\r\n"); s.recv(1)
print("opened", flush=True); sys.stdin.readline()'
half='import socket
s = socket.create_connection(("127.0.0.1", 1080))
s.sendall(b"CONNECT site.test:80 HTTP/1.1\r\nHost: site.test:80\r\n\r\n"); assert b"200" in s.recv(1000)
s.sendall(b"GET /hello HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\n\r\n"); s.shutdown(socket.SHUT_WR)
text = b""
while part := s.recv(1000): text += part
print(text.decode().split("\r\n\r\n")[1])'
slow='import socket, time
s = socket.create_connection(("127.0.0.1", 1080))
for byte in b"GET http://site.test/hello HTTP/1.1\r\nHost: site.test\r\n\r\n": s.sendall(bytes([byte])); time.sleep(0.02)
print(s.recv(1000).decode().split("\r\n")[0])'
while_held() {  # NAME PROGRAM ARGUMENT…: another program goes on while this one holds what it opened
  coproc held { exec python3 -c "${@:2}"; }
  read -r _ <&"${held[0]}" || { echo "$1: nothing was opened"; return; }
  try "$1" curl -sS --max-time 240 http://site.test/hello
  now "$1"
  eval "exec ${held[1]}>&-"
  wait "$held_PID"
}

try "reset, tunnelled" code https://site.test/reset
try "reset, opened" code https://open.test/reset
try "expired, tunnelled" code https://expired.site.test/hello
try "expired, opened" code https://expired.open.test/hello
try "another's, tunnelled" code https://wrong.site.test/hello
try "another's, opened" code https://wrong.open.test/hello
try "IPv6 only" curl -sS https://six.site.test/hello
try "no name server" code http://silent.site.test/hello
try "redirect to a denied host" code -L https://open.test/away
try "clock behind" with_clock -7
try "clock ahead" with_clock 7
try "half-closed" python3 -c "$half"
try "slow head" python3 -c "$slow"
now "at rest"
while_held "many idle" "$many" 900
while_held "many unfinished heads" "$many" 900 unfinished
while_held "never reads" "$unread"
try "down" bash -c "curl -sS http://site.test/large?$bytes | wc -c"
truncate -s "$bytes" /tmp/up
try "up" curl -sS -T /tmp/up http://site.test/size
now "large"
load() { until [ -e /tmp/enough ]; do curl -sf --max-time 240 http://site.test/hello > /dev/null && echo came || echo failed; done; }
for i in 1 2 3; do load > /tmp/load.$i & done
now "rules replaced"
touch /tmp/enough
wait $(jobs -p)
echo "rules replaced: $(cat /tmp/load.* | sort | uniq -c | tr -s ' \n' ' ')"
before=$(cat "$NODE_EXTRA_CA_CERTS")
curl -s http://site.test/large?100000000000 | { head -c 1000000 > /dev/null; echo "now flowing"; cat > /dev/null; }
printf 'cut: exit %s\n' "${PIPESTATUS[0]}"
until curl -sf http://site.test/hello > /dev/null; do sleep 0.2; done
while [ "$before" = "$(cat "$NODE_EXTRA_CA_CERTS")" ]; do sleep 0.2; done
try "after, opened" curl -sS https://open.test/hello
