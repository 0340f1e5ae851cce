#!/bin/sh
# One client of a run, or a site that stays at a federation, with the certificate in certs/ of the
# current folder:
#   client.sh HOST:PORT NUMBER|SITE [further options of `fedmx client`, e.g. --data mine.npz]
set -eu
if [ $# -lt 2 ]; then
    echo "usage: client.sh HOST:PORT NUMBER|SITE [OPTION...]" >&2
    exit 2
fi
address=$1 name=$2
shift 2
case $name in
*[!0-9]*) set -- --stay "$@" ;;
*) set -- --id "$name" "$@" && name=client-$name ;;
esac
exec "${FEDMX:-fedmx}" client "$address" --memory memory \
    --ca certs/ca.pem --cert "certs/$name.pem" --key "certs/$name.key" "$@"
