# Runs inside the tree of devbox:1, after its packages and before finish.sh.

# npm came as a plain package: give it its commands.
ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx
chmod 0755 /usr/local/lib/node_modules/npm/bin/*.js
mkdir -p /usr/local/etc
printf 'fund=false\naudit=false\nupdate-notifier=false\n' > /usr/local/etc/npmrc

ln -s bun /usr/local/bin/bunx

# A sandbox is one project's own machine, so pip may write to it without a virtual environment.
printf '[global]\nbreak-system-packages = true\nroot-user-action = ignore\ndisable-pip-version-check = true\n' > /etc/pip.conf

# Go's own test suite and its API history are of no use to a program that is built with Go.
rm -rf /usr/share/go-*/test /usr/share/go-*/api

useradd --create-home --uid 1000 --user-group --groups sudo --shell /bin/bash user
printf 'user ALL=(ALL:ALL) NOPASSWD: ALL\n' > /etc/sudoers.d/user
chmod 0440 /etc/sudoers.d/user

# Every command answers before the image is packed.
for probe in 'node --version' 'npm --version' 'npx --version' 'bun --version' 'bunx --version' \
    'python3 --version' 'pip --version' 'go version' 'rustc --version' 'cargo --version' \
    'gcc --version' 'g++ --version' 'make --version' 'sudo -V' 'ssh -V' 'jq --version' 'rg --version'; do
    answer=$(HOME=/tmp $probe 2>&1)
    printf '%s: %s\n' "$probe" "$(printf '%s' "$answer" | head -n 1)"
done
rm -rf /tmp/.npm /tmp/.bun /tmp/.cache
