#!/usr/bin/env bash
# Checks, with a real account, the behaviour that a loopback cloud cannot show, on one small CPU spot machine.
#
#   infra/verify_cloud.sh aws s3://my-bucket/tradewind-verify
#   infra/verify_cloud.sh gcp gs://my-bucket/tradewind-verify
#   AZURE_STORAGE_ACCOUNT_NAME=account infra/verify_cloud.sh azure az://my-container/tradewind-verify
#
# It costs at most about 5 cents: one machine with 2 cores for at most 30 minutes (spot, below 4 cents an hour), its
# disk and its public address (about 2 cents), and some requests. limits.max_usd_per_hour is 0.10. At the end, also
# after a failure, it ends the machine, removes the network, and checks whether anything is left. The bucket keeps the
# files of the job: if this script created the bucket, it shows the command that deletes it.
#
# Needs: tradewind with the cloud's extra, credentials (tradewind doctor --policy aws), and your own bucket or a name
# for a new one.
# Results: tradewind-verify-CLOUD-DATE/, with replies that identify no account and contain no other data of yours.
set -euo pipefail

cloud=${1:?usage: verify_cloud.sh aws|gcp|azure BUCKET_URL}
store=${2:?usage: verify_cloud.sh aws|gcp|azure BUCKET_URL}
minutes=30
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
results=$PWD/tradewind-verify-$cloud-$(date -u +%Y%m%dT%H%M%SZ)

case $cloud in
aws)
  region=${AWS_REGION:-us-east-1}
  types='instance_types = ["t3.large"]'
  ;;
gcp)
  region=${GOOGLE_CLOUD_REGION:-us-central1}
  types='machine_types = ["e2-standard-2"]'
  ;;
azure)
  region=${AZURE_REGION:-eastus}
  types='instance_types = ["Standard_D2s_v5"]'
  ;;
*)
  echo "verify_cloud.sh: $cloud is not aws, gcp or azure" >&2
  exit 2
  ;;
esac

if [[ ${3:-} != --yes ]]; then
  read -r -p "Rent one small spot machine on $cloud in $region for at most $minutes minutes (about 5 cents)? [y/N] " answer
  [[ $answer == y || $answer == yes ]] || exit 0
fi

mkdir "$results"
cd "$results"
unset "${!TRADEWIND_@}"
export TRADEWIND_STATE_DIR=$results/state
passed=0 failed=0

check() { # WHAT COMMAND...: run it, log its output, and count the result
  local what=$1
  shift
  echo "== $what" | tee -a log
  if "$@" >>log 2>&1; then
    echo "passed: $what" | tee -a summary
    passed=$((passed + 1))
  else
    echo "FAILED: $what (see $results/log)" | tee -a summary
    failed=$((failed + 1))
  fi
}

# shellcheck disable=SC2329 # called by the trap
clean_up() {
  trap - EXIT INT TERM
  echo "== cleaning up"
  tradewind down --force >>log 2>&1 || true
  if tradewind nodes --output json 2>>log | grep -q '"instance_id"'; then
    echo "FAILED: a machine is left: run tradewind nodes and tradewind down again in $results" | tee -a summary
    failed=$((failed + 1))
  fi
  tradewind down --cloud "$cloud" >>log 2>&1 || {
    echo "FAILED: the network is not removed: tradewind down --cloud $cloud in $results" | tee -a summary
    failed=$((failed + 1))
  }
  grep -h " is kept: " log | sort -u || true
  echo "$passed passed, $failed failed; everything is in $results"
  [[ $failed == 0 ]] || exit 1
}
trap clean_up EXIT
trap 'exit 130' INT TERM

tradewind init --yes --clouds "$cloud" --store "$store" --max-usd-per-hour 0.10 >>log 2>&1 || true # before the network
"$python" - "$region" "$types" <<'END'
import re, sys
region, types = sys.argv[1:]
text = open("tradewind.toml").read()
text = re.sub(r"(?m)^regions = .*$", f'regions = ["{region}"]', text)
text = re.sub(r"(?m)^(instance|machine)_types = .*$", types, text)
open("tradewind.toml", "w").write(text)
END
cp "$here/../examples/gpt.py" "$here/../examples/gpt.yaml" . # a small model, trained on CPUs in a minute

check "the network and the bucket are created" tradewind up --cloud "$cloud"
check "the account has all permissions" tradewind doctor --cloud "$cloud"
check "offers with prices" tradewind offers --cloud "$cloud"
check "a job runs on a rented machine" timeout "${minutes}m" tradewind submit gpt.yaml --yes --wait
check "its history" tradewind explain gpt
check "its costs" tradewind report
check "its logs" tradewind logs gpt
image=$(sed -n 's/^image = "\(.*\)"$/\1/p' tradewind.toml)
if [[ $image == ssm:* ]]; then
  image=$("$python" -c "import boto3, sys
print(boto3.client('ssm', region_name=sys.argv[1]).get_parameter(Name=sys.argv[2])['Parameter']['Value'])" \
    "$region" "${image#ssm:}")
fi
check "what $cloud replies to odd requests" env PYTHONPATH="$here/.." \
  "$python" -m infra.record_replies "$cloud" "$region" "$image" "$store" replies.json
