# Runs inside the tree of every image, last: settings, then the removal of all that a build leaves behind and of
# all that must differ from one sandbox to the next.

# The only locale there is without the package `locales`, and the right one for programs that talk to programs.
printf 'LANG=C.UTF-8\n' > /etc/default/locale
printf 'LANG=C.UTF-8\n' > /etc/environment
printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n' > /etc/hosts
printf '# Written when the sandbox gets a network.\n' > /etc/resolv.conf
printf '# The agent mounts what a sandbox needs.\n' > /etc/fstab

# Packages that are installed in a sandbox come without manuals and translations, and without fsync: its disk
# does not outlive it.
rm -f /etc/dpkg/dpkg.cfg.d/99mmdebstrap /etc/apt/apt.conf.d/99mmdebstrap
cat > /etc/dpkg/dpkg.cfg.d/hutch <<'CONFIG'
force-unsafe-io
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
CONFIG
cat > /etc/apt/apt.conf.d/90hutch <<'CONFIG'
APT::Install-Recommends "false";
Acquire::Languages "none";
CONFIG

id -u user > /dev/null 2>&1 || useradd --create-home --uid 1000 --user-group --shell /bin/bash user

# No password opens either account; a key may. `!` would lock the account for keys as well.
usermod --password '*' root
usermod --password '*' user

# The day of the last password change is the day of the build: no ageing instead.
sed -i -E 's/^([^:]*:[^:]*):[0-9]*:/\1::/' /etc/shadow

: > /etc/machine-id
rm -f /etc/hostname /etc/.pwd.lock /etc/passwd- /etc/shadow- /etc/group- /etc/gshadow- /etc/subuid- /etc/subgid-
rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub
rm -f /var/lib/dbus/machine-id /var/lib/systemd/random-seed
rm -rf /var/cache/apt /var/cache/ldconfig/* /var/cache/debconf/*-old /var/lib/apt/lists /var/lib/dpkg/*-old
mkdir -p /var/cache/apt/archives/partial /var/lib/apt/lists/partial
find /var/log -type f -delete
find /usr/share/man /usr/share/info /usr/share/locale -mindepth 1 -delete 2> /dev/null || true
