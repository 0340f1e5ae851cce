#!/bin/sh
# One client, with the certificate in certs/ of the current folder:
#   client.sh HOST:PORT NUMBER [further options of `fedmx client`, e.g. --data mine.npz]
set -eu
if [ $# -lt 2 ]; then
    echo "usage: client.sh HOST:PORT NUMBER [OPTION...]" >&2
    exit 2
fi
address=$1 number=$2
shift 2
exec "${FEDMX:-fedmx}" client "$address" --id "$number" --memory memory \
    --ca certs/ca.pem --cert "certs/client-$number.pem" --key "certs/client-$number.key" "$@"
