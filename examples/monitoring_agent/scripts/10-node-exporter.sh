#!/bin/bash
# Install Prometheus's node_exporter, with the node's cluster, group and type as a metric. Running it again changes nothing.
#
# It needs no internet: the program comes with this script, in files/ (README.md).
set -euo pipefail

root=${ROOT:-} # a folder that stands for / in tests
program=$root/usr/local/bin/node_exporter
unit=$root/etc/systemd/system/node-exporter.service
metrics=$root/var/lib/node-exporter/node.prom

[[ -f files/node_exporter ]] || {
	echo "files/node_exporter is absent: put it there before you deploy (README.md)"
	exit 1
}
install -D --mode=755 --compare files/node_exporter "$program"
install -D --mode=644 --compare files/node-exporter.service "$unit"
mkdir -p "$(dirname "$metrics")"
printf 'hyperpod_node_info{cluster="%s",group="%s",instance_type="%s",instance_id="%s"} 1\n' \
	"$HYPERPOD_CLUSTER_NAME" "$HYPERPOD_INSTANCE_GROUP" "$HYPERPOD_INSTANCE_TYPE" "$HYPERPOD_INSTANCE_ID" >"$metrics"
systemctl daemon-reload
systemctl enable --now node-exporter.service
echo "node_exporter runs: port 9100"
