#!/bin/sh
# Three hospitals and a server without data, each as a process, over mutual TLS on this machine.
set -e
cd "$(dirname "$0")"
python3 tables.py
[ -d certs ] || fedmx certs all certs --clients 3
tls() { echo "--ca certs/ca.pem --cert certs/$1.pem --key certs/$1.key"; }
fedmx server clinic.yaml --listen 127.0.0.1:7071 $(tls server) &
number=0
for site in a b c; do
    fedmx client 127.0.0.1:7071 --id $number --data $site.csv --keep-model $site.safetensors \
        $(tls client-$number) > $site.log 2>&1 &
    number=$((number + 1))
done
wait
