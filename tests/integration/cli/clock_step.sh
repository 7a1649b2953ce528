# Run inside a machine whose clock may be set: starts a guest, sets the host's clock four years ahead, and prints how far
# the guest's clock is from the host's before and after. Arguments: PROGRAM IMAGE CACHE-FOLDER CONFIG-FOLDER.
set -eu
export XDG_CACHE_HOME=$3 XDG_CONFIG_HOME=$4 XDG_STATE_HOME=/tmp/state XDG_RUNTIME_DIR=/tmp/run
mkdir -p /tmp/state
mkdir -m 700 /tmp/run
mkfifo /tmp/in
"$1" --verbose run --image "$2" -- sh -c 'echo ready; while read line; do date +%s; done' </tmp/in >/tmp/out 2>/tmp/err &
exec 3>/tmp/in
answers() { wc -l </tmp/out; }
wait_for() { until [ "$(answers)" -ge "$1" ]; do kill -0 $! || { cat /tmp/err; exit 1; }; sleep 0.1; done; }
apart() {
  local want=$(($(answers) + 1))
  echo question >&3
  wait_for "$want"
  echo $(($(date +%s) - $(tail -n 1 /tmp/out)))
}
wait_for 1
echo "apart before: $(apart)"
date -s '+4 years' >/dev/null
# The host notices by itself and tells the guest; asking again gives it the time.
for _ in $(seq 300); do
  difference=$(apart)
  [ "$difference" -gt 60 ] || break
  sleep 0.2
done
echo "apart after: $difference"
exec 3>&-
wait $!
"$1" events list --name anchorhold.vm.start
