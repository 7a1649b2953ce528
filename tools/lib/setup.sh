# Shared by tools/run, tools/test and .ci/run: packages, build, guest image. Everything it says goes to standard error.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${ANCHORHOLD_BUILD_DIR:-$root/build/default}

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$1" >&2; [[ -z ${2:-} ]] || printf 'to do: %s\n' "$2" >&2; exit 125; }

# packages_of KIND…: the names in packaging/install-list with one of these kinds.
packages_of() {
  local kinds=" $* "
  while read -r kind name _; do
    [[ $kinds == *" $kind "* ]] && printf '%s\n' "$name"
  done < <(grep -v '^#' "$root/packaging/install-list")
}

# install_packages KIND…: the only step that needs root (through sudo when not root).
install_packages() {
  local missing=() name
  local -A have=()
  while read -r name; do have[$name]=1; done < <(
    dpkg-query -W -f '${Package} ${db:Status-Status}\n' 2>/dev/null | awk '$2=="installed"{print $1}')
  for name in $(packages_of "$@"); do [[ -n ${have[$name]:-} ]] || missing+=("$name"); done
  # libvirt's driver looks this user up when it runs as root, and does not start without it.
  if [[ $(id -u) -eq 0 && " $* " == *" run "* ]] && ! getent passwd libvirt-qemu >/dev/null; then
    say "Adding the system user libvirt-qemu, which libvirt wants when root uses it"
    useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin libvirt-qemu
  fi
  [[ ${#missing[@]} -gt 0 ]] || return 0
  command -v apt-get >/dev/null || die "this is not a Debian system (no apt-get)" "install the packages named in packaging/install-list by hand"
  local as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null ||
      die "packages are missing and there is no sudo to install them with" "as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "Installing ${#missing[@]} packages (the only step that needs root): ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0)
  "${apt[@]}" update >&2 || die "apt-get update failed" "check the network and /etc/apt/sources.list"
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >&2 ||
    die "the packages could not be installed" "read apt's message above"
}

# build_targets TESTING TARGET…: configures when needed and builds; TESTING is ON or OFF (ON stays ON).
build_targets() {
  local testing=$1; shift
  export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros,include_file_mtime,include_file_ctime}
  if [[ ! -f $build/build.ninja ]] || { [[ $testing == ON ]] && ! grep -q '^BUILD_TESTING:BOOL=ON' "$build/CMakeCache.txt"; }; then
    say "Configuring in ${build#"$root"/}"
    (cd "$root" && cmake --preset default -B "$build" -DBUILD_TESTING="$testing") >&2 || die "cmake failed" "read its message above"
  fi
  # ninja -n says in a moment whether there is anything to do.
  if ! ninja -C "$build" -n "$@" 2>/dev/null | grep -q 'no work to do'; then
    say "Building"
    ninja -C "$build" "$@" >&2 || die "the build failed" "read the compiler's message above"
  fi
}

# build_image NAME: the guest image, from the cache when its inputs have not changed.
build_image() {
  "$build/bin/anchorhold" image build "$1" >&2 || die "the guest image '$1' could not be built" "read the message above"
}
