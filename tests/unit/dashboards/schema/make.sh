#!/bin/sh
# Makes the JSON Schemas beside this file anew out of Grafana's own TypeScript packages. Needs node
# and npm; the tests need neither.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp "$here/package.json" "$here/package-lock.json" "$here/tsconfig.json" "$work"
cd "$work"
npm ci --silent --no-audit --no-fund
types=node_modules/@grafana/schema/dist/types

# file -> type -> schema
while read -r file type schema; do
    nice npx ts-json-schema-generator --path "$types/$file.d.ts" --tsconfig tsconfig.json \
        --type "$type" --minify >"$here/$schema.schema.json"
done <<'SCHEMAS'
raw/dashboard/x/types.gen Dashboard dashboard
raw/composable/bargauge/panelcfg/x/types.gen Options bargauge.options
raw/composable/heatmap/panelcfg/x/types.gen Options heatmap.options
raw/composable/heatmap/panelcfg/x/types.gen FieldConfig heatmap.custom
raw/composable/piechart/panelcfg/x/types.gen Options piechart.options
raw/composable/piechart/panelcfg/x/types.gen FieldConfig piechart.custom
raw/composable/stat/panelcfg/x/types.gen Options stat.options
raw/composable/statetimeline/panelcfg/x/types.gen Options state-timeline.options
raw/composable/statetimeline/panelcfg/x/types.gen FieldConfig state-timeline.custom
raw/composable/table/panelcfg/x/types.gen Options table.options
raw/composable/table/panelcfg/x/types.gen FieldConfig table.custom
raw/composable/timeseries/panelcfg/x/types.gen Options timeseries.options
common/common.gen GraphFieldConfig timeseries.custom
SCHEMAS
