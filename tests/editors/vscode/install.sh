#!/usr/bin/env bash
# The real VS Code workbench (code-server) and a driver for Debian's Chromium, for the tests beside this file.
#
#   install.sh DIR      puts both into DIR, which may be kept between runs: a second call does nothing
#
# code-server ships VS Code's own server, extension host and workbench; its install scripts would fetch things from
# elsewhere, so they do not run, and the one native module that it needs is built from its source.
set -euo pipefail
directory=${1:?usage: install.sh DIR}
code_server=4.100.3      # VS Code 1.100.3: the last line that runs on Node 20
playwright=1.56.1
stamp=.installed-$code_server-$playwright

mkdir -p "$directory"
cd "$directory"
if [ -f "$stamp" ]; then
    echo "code-server $code_server is there"
    exit 0
fi
quiet=(--no-audit --no-fund --ignore-scripts --loglevel=error)
printf '{"private": true}\n' > package.json
npm install "${quiet[@]}" "code-server@$code_server" "playwright-core@$playwright"
(cd node_modules/code-server/lib/vscode && npm install --omit=dev "${quiet[@]}")
npm rebuild argon2 --loglevel=error >/dev/null
touch "$stamp"
echo "code-server $code_server is ready: $(du -sm . | cut -f1) MB"
