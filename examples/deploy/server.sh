#!/bin/sh
# Serves the experiment.yaml of the current folder: resumes the latest run in runs/ if it is
# not done, or starts the first one. Options that `fedmx server` and `fedmx resume` both have,
# such as --module MODULE, are passed on:
#   server.sh [OPTION...]
set -eu
fedmx=${FEDMX:-fedmx}

latest=$(ls -t runs/*/run.json 2>/dev/null | head -n 1)
if [ -z "$latest" ]; then
    exec "$fedmx" server experiment.yaml "$@"
fi
run=${latest%/run.json}
if grep -q '"status": "done"' "$run/status.json" 2>/dev/null; then
    echo "$run is done; move runs/ away to begin another run"
    exit 0
fi
exec "$fedmx" resume "$run" "$@"
