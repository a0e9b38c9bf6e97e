# Unpacks packages of another architecture or release of Debian into a folder, for scripts that source this. Needs no
# root: the packages are not installed.

# make_package_database DATABASE_DIR ARCHITECTURE [OPTION...]: a package database of its own, in which nothing is
# installed: apt then resolves all dependencies. Sets `apt_options`, with which apt-get uses it.
make_package_database() {
  local database=$1 architecture=$2
  shift 2
  mkdir -p "$database"/{state/lists/partial,cache/archives/partial}
  : >"$database/status"
  apt_options=(-q -o APT::Architecture="$architecture" -o APT::Architectures::="$architecture"
               -o Dir::State="$database/state" -o Dir::State::status="$database/status"
               -o Dir::Cache="$database/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" "$@")
  apt-get "${apt_options[@]}" update
}

# unpack_packages DATABASE_DIR INTO PACKAGE...: with their dependencies.
unpack_packages() {
  local database=$1 into=$2 package
  shift 2
  mkdir -p "$into"
  apt-get "${apt_options[@]}" install -y --no-install-recommends --download-only "$@"
  for package in "$database"/cache/archives/*.deb; do
    dpkg --extract "$package" "$into"
    rm "$package"
  done
}
