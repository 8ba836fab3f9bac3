// Figures as people say them.

function span(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return '–';
  seconds = Math.max(seconds, 0);
  if (seconds < 0.9995) return `${(seconds * 1000).toFixed(0)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  for (const [unit, name, below, belowName] of [[86400, 'd', 3600, 'h'], [3600, 'h', 60, 'min'], [60, 'min', 1, 's']]) {
    if (whole >= unit) {
      const rest = Math.floor((whole % unit) / below);
      return `${Math.floor(whole / unit)} ${name}` + (rest ? ` ${rest} ${belowName}` : '');
    }
  }
  return '–';
}

function count(number) {
  return number === null || number === undefined ? '–' : Math.round(number).toLocaleString('en');
}

function percent(share) {
  return share === null || share === undefined ? '–' : `${(share * 100).toFixed(1)} %`;
}

function large(number, unit) {
  if (number === null || number === undefined) return '–';
  for (const [size, name] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) {
    if (number >= size) return `${(number / size).toPrecision(3)} ${name}${unit}`;
  }
  return `${number.toPrecision(3)} ${unit}`;
}

function clock(unix) {
  const at = new Date(unix * 1000), pad = (part) => String(part).padStart(2, '0');
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

function day(unix) {
  const at = new Date(unix * 1000);
  return at.toDateString() === new Date().toDateString() ? clock(unix) : `${at.toLocaleDateString('en-CA')} ${clock(unix)}`;
}
