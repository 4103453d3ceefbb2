#!/bin/bash
# Usage: check.sh [BASE]: synthesize the cluster, and say what deploying it would change.
#
#   BASE  a folder that `cdk synth --output` wrote before the change; comparing with it needs no AWS account.
#         Absent: compare with what is deployed.
# Exit codes: 0: it can be deployed, whatever it would change; anything else: the message says what is wrong.
set -euo pipefail

base=${1:+$(cd -- "$1" && pwd)}
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

cdk synth --quiet
if [[ -z $base ]]; then
	cdk diff --app cdk.out
	exit
fi
for template in cdk.out/*.template.json; do
	name=$(basename -- "$template")
	if [[ -f $base/$name ]]; then
		cdk diff "${name%.template.json}" --app cdk.out --template "$base/$name"
	else
		echo "Stack ${name%.template.json} is new."
	fi
done
for template in "$base"/*.template.json; do
	name=$(basename -- "$template")
	[[ -f cdk.out/$name ]] || echo "Stack ${name%.template.json} is gone from the app; it stays on AWS until somebody deletes it."
done
