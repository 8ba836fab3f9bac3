#!/bin/sh
# Draws dashboards of a made-up run into docs/images with Grafana's own components in headless
# Chromium. A developer's tool: needs node, npm, prometheus, promtool, chromium and curl; half a
# gigabyte of packages stays in the cache for the next time.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast-pictures
port=${PORT:-19390}
page_port=$((port + 1))
ranks=${RANKS:-64}

for program in node npm prometheus promtool chromium; do
    command -v "$program" >/dev/null || { echo "draw.sh: no $program on PATH" >&2; exit 1; }
done

mkdir -p "$work" "$root/docs/images"
cp "$here"/* "$work"
cd "$work"
[ -d node_modules/@grafana/ui ] || npm install --silent --no-audit --no-fund --no-package-lock
npx esbuild page.jsx --bundle --format=esm --minify --outfile=page.js --log-level=error \
    --loader:.svg=text --loader:.ttf=empty '--define:process.env.NODE_ENV="production"'

end=$(($(date +%s) / 30 * 30))
python3 story.py "$end" "$ranks" >series.om
rm -rf data boards
promtool tsdb create-blocks-from openmetrics series.om data >/dev/null
ln -s "$root/dashboards" boards
echo '{}' >prometheus.yml

prometheus --config.file=prometheus.yml --storage.tsdb.path=data --log.level=warn \
    --web.listen-address="127.0.0.1:$port" --web.cors.origin='.*' &
prometheus=$!
python3 -m http.server "$page_port" --bind 127.0.0.1 >/dev/null 2>&1 &
pages=$!
trap 'kill $prometheus $pages' EXIT
for _ in $(seq 50); do
    curl --silent --fail "http://127.0.0.1:$port/-/ready" >/dev/null && break
    sleep 0.2
done

# name -> height
while read -r board height; do
    timeout 120 chromium --headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync \
        --hide-scrollbars --user-data-dir="$work/chromium" --window-size="1560,$height" \
        --virtual-time-budget=30000 --screenshot="$root/docs/images/$board.png" \
        "http://127.0.0.1:$page_port/page.html?board=$board&prometheus=http://127.0.0.1:$port&end=$end&run=llm-7b" \
        2>/dev/null
    echo "docs/images/$board.png"
done <<'BOARDS'
holdfast-run 1660
holdfast-ranks 1875
BOARDS
