// Draws one of our dashboards with Grafana's own components on a live Prometheus:
//   page.html?board=holdfast-run&prometheus=http://127.0.0.1:9090&end=UNIX_S&run=llm-7b
// Frames, values, bars and lines are Grafana's (PanelChrome, BigValue, BarGauge, TimeSeries). Heat
// maps, timelines, donuts and tables are panel plugins that no package has: those are drawn here,
// with its theme, colours and value mappings.
import React from 'react';
import { createRoot } from 'react-dom/client';
import { FieldType, ThemeContext, createTheme, dateTime, getDisplayProcessor, toDataFrame } from '@grafana/data';
import { BarGauge, BigValue, GlobalStyles, PanelChrome, TimeSeries } from '@grafana/ui';
import 'uplot/dist/uPlot.min.css';
import * as chromatic from 'd3-scale-chromatic';

const asked = new URLSearchParams(location.search);
const end = Number(asked.get('end'));
const start = end - 6 * 3600;
const theme = createTheme({ colors: { mode: 'dark' } });
const WIDTH = 1560;
const CELL = WIDTH / 24;
const ROW = 34;

function filled(text) {
  return text
    .replaceAll('$__rate_interval', '2m').replaceAll('$__range', '6h')
    .replaceAll('$ranks', asked.get('ranks') ?? '32').replaceAll('$run', asked.get('run'))
    .replaceAll('$cluster', '.*').replaceAll(/\$(job|node)/g, '.+');
}

async function query(target, points) {
  const route = target.instant ? 'query' : 'query_range';
  const step = Math.max(30, Math.ceil((end - start) / points / 30) * 30);
  const when = target.instant ? { time: end } : { start, end, step };
  const body = new URLSearchParams({ query: filled(target.expr), ...when });
  const answer = await fetch(`${asked.get('prometheus')}/api/v1/${route}`, { method: 'POST', body });
  const { data } = await answer.json();
  return (data?.result ?? []).map((row) => ({
    labels: row.metric,
    name: (target.legendFormat || '').replaceAll(/\{\{(\w+)\}\}/g, (_, label) => row.metric[label] ?? ''),
    values: (row.values ?? [row.value]).map(([at, value]) => [at * 1000, Number(value)]),
  }));
}

function config(panel, name) {
  const { defaults, overrides } = panel.fieldConfig;
  const made = { ...defaults, custom: { ...defaults.custom } };
  for (const { matcher, properties } of overrides) {
    if (matcher.options !== name) continue;
    for (const { id, value } of properties) made[id] = value;
  }
  return made;
}

function shown(panel, row) {
  const field = { name: row.name, type: FieldType.number, config: config(panel, row.name), values: [] };
  const value = row.values.at(-1)?.[1];
  return { ...getDisplayProcessor({ field, theme })(value), title: row.name };
}

const Stat = ({ panel, rows, width, height }) => {
  const values = rows.length ? rows.map((row) => shown(panel, row)) : [{ text: 'no data', color: '#8c8c8c', numeric: NaN }];
  return values.slice(0, 4).map((value, index) => (
    <BigValue key={index} value={{ ...value, title: rows.length > 1 ? value.title : undefined }} theme={theme}
      width={width} height={height / Math.min(4, values.length)} colorMode={panel.options.colorMode}
      graphMode="none" justifyMode="auto" textMode="auto" />
  ));
};

const Bars = ({ panel, rows, width, height }) => {
  const most = Math.max(...rows.map((row) => row.values.at(-1)[1]), 1e-9);
  return rows.slice(0, Math.floor(height / 24)).map((row) => {
    const set = config(panel, row.name);
    const value = shown(panel, row);
    return <BarGauge key={row.name} value={{ ...value, title: row.name }} theme={theme} width={width} height={22}
      orientation="horizontal" displayMode="basic" valueDisplayMode="text" itemSpacing={4}
      field={{ ...set, min: 0, max: set.max ?? most, thresholds: set.thresholds }}
      display={() => value} text={{ titleSize: 12, valueSize: 12 }} />;
  });
};

const Lines = ({ panel, rows, width, height }) => {
  if (!rows.length) return <Nothing />;
  const times = [...new Set(rows.flatMap((row) => row.values.map(([at]) => at)))].sort((a, b) => a - b);
  const isShare = panel.fieldConfig.defaults.custom.stacking?.mode === 'percent';
  const fields = rows.map((row, index) => {
    const at = new Map(row.values);
    const set = config(panel, row.name);
    const stacking = isShare ? { mode: 'normal', group: 'A' } : set.custom.stacking;
    const field = { name: row.name, type: FieldType.number, config: { ...set, displayName: row.name, custom: { ...set.custom, stacking } },
      values: times.map((time) => at.get(time) ?? null), state: { displayName: row.name, seriesIndex: index } };
    field.display = getDisplayProcessor({ field, theme });
    return field;
  });
  if (isShare) times.forEach((_, index) => {
    const sum = fields.reduce((all, field) => all + (field.values[index] ?? 0), 0) || 1;
    fields.forEach((field) => { if (field.values[index] !== null) field.values[index] /= sum; });
  });
  const frame = { fields: [{ name: 'Time', type: FieldType.time, config: {}, values: times }, ...fields], length: times.length };
  const range = { from: dateTime(start * 1000), to: dateTime(end * 1000), raw: { from: 'now-6h', to: 'now' } };
  return <TimeSeries frames={[frame]} timeRange={range} timeZone="utc" width={width} height={height}
    legend={{ showLegend: true, displayMode: 'list', placement: 'bottom', calcs: [] }} options={{}} />;
};

const Nothing = () => <div style={{ color: '#8c8c8c', padding: 8 }}>no data</div>;

// A canvas whose rows are the series: `paint` says the colour of a value, or nothing.
const Rows = ({ rows, width, height, paint, reversed }) => {
  const canvas = React.useRef(null);
  const numeric = rows.every((row) => row.name !== '' && !Number.isNaN(Number(row.name)));
  const ordered = [...rows].sort((a, b) => (numeric ? a.name - b.name : a.name.localeCompare(b.name, 'en', { numeric: true })));
  React.useEffect(() => {
    const ratio = 2;
    const [left, bottom] = [64, 18];
    canvas.current.width = width * ratio;
    canvas.current.height = height * ratio;
    const draw = canvas.current.getContext('2d');
    draw.scale(ratio, ratio);
    const high = (height - bottom) / ordered.length;
    const across = (at) => left + ((at / 1000 - start) / (end - start)) * (width - left);
    ordered.forEach((row, index) => {
      const step = Math.min(...row.values.slice(1).map(([at], i) => at - row.values[i][0]), 600000);
      for (const [at, value] of row.values) {
        const colour = paint(value);
        if (!colour) continue;
        draw.fillStyle = colour;
        draw.fillRect(across(at), index * high, across(at + step) - across(at) + 0.6, Math.max(high - (high > 6 ? 1 : 0), 0.8));
      }
    });
    draw.fillStyle = theme.colors.text.secondary;
    draw.font = `11px ${theme.typography.fontFamily}`;
    draw.textAlign = 'right';
    const every = Math.ceil(13 / high);
    ordered.forEach((row, index) => { if (index % every === 0) draw.fillText(row.name, left - 6, index * high + high / 2 + 4); });
    draw.textAlign = 'center';
    for (let at = Math.ceil(start / 3600) * 3600; at < end; at += 3600)
      draw.fillText(dateTime(at * 1000).utc().format('HH:mm'), across(at * 1000), height - 4);
  });
  return <canvas ref={canvas} style={{ width, height }} />;
};

const Heat = ({ panel, rows, width, height }) => {
  if (!rows.length) return <Nothing />;
  const { min, max, scheme, reverse } = panel.options.color;
  const colour = chromatic[`interpolate${scheme}`];
  const paint = (value) => {
    if (Number.isNaN(value)) return null;
    const share = Math.min(1, Math.max(0, (value - min) / (max - min)));
    return colour(reverse ? 1 - share : share);
  };
  return <Rows rows={rows} width={width} height={height} paint={paint} />;
};

const States = ({ panel, rows, width, height }) => {
  if (!rows.length) return <Nothing />;
  const meanings = panel.fieldConfig.defaults.mappings.find((one) => one.type === 'value').options;
  const seen = new Set(rows.flatMap((row) => row.values.map(([, value]) => String(value))));
  return <>
    <Rows rows={rows.slice(0, 32)} width={width} height={height - 22} paint={(value) => meanings[value]?.color} />
    <div style={{ fontSize: 12 }}>{Object.entries(meanings).filter(([value]) => seen.has(value)).map(([value, one]) =>
      <span key={value} style={{ marginRight: 14 }}><span style={{ color: one.color }}>■</span> {one.text}</span>)}</div>
  </>;
};

const Donut = ({ panel, rows, width, height }) => {
  const sum = rows.reduce((all, row) => all + row.values.at(-1)[1], 0) || 1;
  const radius = height / 2 - 12;
  let angle = -Math.PI / 2;
  const point = (at, far) => `${height / 2 + far * Math.cos(at)},${height / 2 + far * Math.sin(at)}`;
  const parts = [...rows].sort((a, b) => b.values.at(-1)[1] - a.values.at(-1)[1]).map((row) => {
    const share = row.values.at(-1)[1] / sum;
    const [from, to] = [angle, angle + Math.min(share, 0.9999) * 2 * Math.PI];
    angle = to;
    const big = share > 0.5 ? 1 : 0;
    const path = `M${point(from, radius)} A${radius},${radius} 0 ${big} 1 ${point(to, radius)} L${point(to, radius * 0.6)} A${radius * 0.6},${radius * 0.6} 0 ${big} 0 ${point(from, radius * 0.6)}Z`;
    return { name: row.name, share, path, colour: config(panel, row.name).color.fixedColor };
  });
  return <div style={{ display: 'flex' }}>
    <svg width={height} height={height}>{parts.map((one) => <path key={one.name} d={one.path} fill={one.colour} />)}</svg>
    <div style={{ padding: 12, fontSize: 13 }}>{parts.map((one) => <div key={one.name}><span style={{ color: one.colour }}>■</span> {one.name} {(one.share * 100).toFixed(1)} %</div>)}</div>
  </div>;
};

const Table = ({ panel, answers, height }) => {
  const { indexByName, excludeByName, renameByName } = panel.transformations[1].options;
  const columns = Object.keys(indexByName).sort((a, b) => indexByName[a] - indexByName[b]);
  const joined = new Map();
  answers.forEach((rows, index) => rows.forEach((row) => {
    const labels = columns.filter((name) => !name.startsWith('Value'));
    const key = labels.filter((label) => label !== 'uuid').map((label) => row.labels[label]).join('|');
    const value = answers.length === 1 ? 'Value' : `Value #${String.fromCharCode(65 + index)}`;
    joined.set(key, { ...joined.get(key), ...row.labels, [value]: row.values.at(-1)[1] });
  }));
  const used = columns.filter((name) => !excludeByName[name] && [...joined.values()].some((row) => row[name] !== undefined));
  const cell = (row, name) => {
    if (!name.startsWith('Value')) return { text: row[name] ?? '' };
    const set = config(panel, renameByName[name]);
    const field = { name, type: FieldType.number, config: { ...set, color: set.color }, values: [] };
    const value = getDisplayProcessor({ field, theme })(row[name] ?? null);
    return { text: `${value.prefix ?? ''}${value.text}${value.suffix ?? ''}`, colour: set['custom.cellOptions'] ? value.color : undefined };
  };
  if (!joined.size) return <Nothing />;
  return <table style={{ width: '100%', fontSize: 13, borderCollapse: 'collapse' }}><tbody>
    <tr>{used.map((name) => <th key={name} style={{ textAlign: 'left', color: theme.colors.primary.text, padding: 3 }}>{renameByName[name] ?? name}</th>)}</tr>
    {[...joined.values()].slice(0, Math.floor(height / 26) - 1).map((row, index) => <tr key={index}>{used.map((name) => {
      const { text, colour } = cell(row, name);
      return <td key={name} style={{ background: colour, color: colour && theme.colors.getContrastText(colour), padding: 3, borderTop: `1px solid ${theme.colors.border.weak}` }}>{text}</td>;
    })}</tr>)}</tbody></table>;
};

const KINDS = { stat: Stat, bargauge: Bars, timeseries: Lines, heatmap: Heat, 'state-timeline': States, piechart: Donut, table: Table };

class Guard extends React.Component {
  state = {};
  static getDerivedStateFromError(error) { return { error }; }
  render() { return this.state.error ? <pre>{String(this.state.error)}</pre> : this.props.children; }
}

const Panel = ({ panel, answers }) => {
  const { x, y, w, h } = panel.gridPos;
  const Kind = KINDS[panel.type];
  return <div style={{ position: 'absolute', left: x * CELL, top: y * ROW, width: w * CELL - 8, height: h * ROW - 8 }}>
    <PanelChrome title={panel.title} description={panel.description} width={w * CELL - 8} height={h * ROW - 8}>
      {(width, height) => <Guard><Kind panel={panel} rows={answers.flat()} answers={answers} width={width} height={height} /></Guard>}
    </PanelChrome></div>;
};

const board = await (await fetch(`/boards/${asked.get('board')}.json`)).json();
const drawn = await Promise.all(board.panels.map(async (panel) => ({
  panel, answers: panel.type === 'row' ? [] : await Promise.all(panel.targets.map((one) => query(one, panel.maxDataPoints ?? 360))),
})));
const bottom = Math.max(...board.panels.map(({ gridPos }) => gridPos.y + gridPos.h)) * ROW;
createRoot(document.getElementById('root')).render(
  <ThemeContext.Provider value={theme}><GlobalStyles />
    <div style={{ position: 'relative', width: WIDTH, height: bottom, background: theme.colors.background.canvas, color: theme.colors.text.primary, fontFamily: theme.typography.fontFamily }}>
      {drawn.map(({ panel, answers }) => panel.type === 'row'
        ? <div key={panel.id} style={{ position: 'absolute', top: panel.gridPos.y * ROW + 4, fontWeight: 500 }}>⌄ {filled(panel.title)}</div>
        : <Panel key={panel.id} panel={panel} answers={answers} />)}
    </div></ThemeContext.Provider>);
document.title = 'drawn';
