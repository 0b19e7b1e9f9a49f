// Draws a chart of the page's data with uPlot. Text from outside enters by textContent only.
"use strict";

const headspaceCharts = (() => {
  // Seconds between two labels of a time axis.
  const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200]
    .concat([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map((days) => 86400 * days));
  const tone = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const digits = (value, unit) => {
    const size = Math.abs(value);
    if (unit === "ms") {
      if (size >= 999.5) return `${(value / 1e3).toFixed(2)} s`;
      if (size >= 99.95) return `${value.toFixed(0)} ms`;
      if (size >= 0.9995) return `${value.toFixed(1)} ms`;
      return size > 0 ? `${(value * 1e3).toFixed(size >= 0.09995 ? 0 : 1)} µs` : "0 ms";
    }
    const number = size >= 99.95 ? value.toFixed(0) : value.toFixed(1);
    return `${number.replace(/\.0$/, "")}${unit === "%" ? " %" : ""}`;
  };
  const clock = (seconds) => {
    const whole = Math.max(0, Math.floor(seconds));
    const two = (number) => String(number).padStart(2, "0");
    const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
    return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
  };
  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  // Readings that are rarer than ticks have no value at most points. Their line has a gap only where no
  // value came for three times the usual interval.
  const longGaps = (u, line, from, to, gaps) => {
    const times = u.data[0].filter((_, at) => u.data[line][at] != null);
    const between = times.slice(1).map((time, at) => time - times[at]).sort((a, b) => a - b);
    const usual = between[Math.floor(between.length / 2)] ?? 0;
    const { min, max } = u.scales.x;
    const long = (3 * usual * u.bbox.width) / (max - min);
    return gaps.filter(([left, right]) => right - left > long);
  };

  // One chart in its own figure. `update` replaces the numbers of its lines.
  class Chart {
    constructor(chart, atS, replays, height) {
      this.hidden = new Set();
      this.figure = element("figure");
      const caption = element("figcaption", "", `${chart.title} `);
      caption.append(element("span", "", chart.unit === "items" || chart.unit === "cores"
        ? "" : `in ${chart.unit}`));
      this.legend = element("ul", "legend");
      this.plot = element("div", "plot");
      this.plot.tabIndex = 0;
      this.plot.setAttribute("role", "img");
      this.tip = element("div", "tip");
      this.tip.hidden = true;
      this.plot.append(this.tip);
      this.plot.addEventListener("keydown", (event) => this.move(event));
      this.plot.addEventListener("blur", () => { this.tip.hidden = true; });
      this.figure.append(caption, this.legend, this.plot);
      Object.assign(this, { chart, atS, replays, height });
    }

    shape() {
      return JSON.stringify([this.chart.unit, this.chart.lines.map((line) => line.name)]);
    }

    draw() {
      const width = this.plot.clientWidth;
      if (width > 0 && !this.drawn) this.make(width);
      this.describe();
    }

    data() {
      return [this.atS, ...this.chart.lines.map((line) => line.values)];
    }

    make(width) {
      const few = this.atS.length < 40;
      let free = 0;
      const lines = this.chart.lines.map((line) => {
        const stroke = tone(`tone-${line.tone || (free % 8) + 1}`);
        if (!line.tone) free += 1;
        return {
          label: line.name, stroke, width: line.tone === "p95" || line.tone === "quiet" ? 1 : 1.75,
          dash: line.tone === "p95" ? [4, 3] : free > 8 ? [6, 3] : undefined,
          spanGaps: this.chart.id === "queues" || this.chart.id === "ranks",
          ...(this.chart.id === "step" ? {} : { gaps: longGaps }),
          points: { show: few, size: 4, fill: stroke }, show: !this.hidden.has(line.name),
        };
      });
      this.colours = lines.map((line) => line.stroke);
      const axis = {
        stroke: tone("quiet"), font: "12px system-ui, sans-serif",
        grid: { stroke: tone("rule"), width: 1 }, ticks: { show: false },
      };
      const rising = (u, low, high) => {
        const marks = this.chart.marks.map((mark) => mark.value);
        const top = Math.max(high ?? 0, ...marks, this.chart.unit === "%" ? 5 : 0);
        return [0, this.chart.id === "gpu" ? 105 : top > 0 ? top * 1.12 : 1];
      };
      this.drawn = new uPlot({
        width, height: this.height, legend: { show: false }, padding: [8, 12, 0, 0],
        scales: { x: { time: false }, y: { range: rising } },
        series: [{}, ...lines],
        axes: [
          { ...axis, values: (u, splits) => splits.map(clock), size: 28, space: 70, incrs: TIMES },
          { ...axis, size: 46, values: (u, splits) => splits.map((value) =>
            Number(value.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: 3 })) },
        ],
        cursor: {
          sync: { key: "run", setSeries: false }, y: false,
          drag: { x: true, y: false }, points: { size: 7 },
        },
        hooks: {
          drawClear: [(u) => this.bands(u)], draw: [(u) => this.marks(u)],
          setCursor: [(u) => this.point(u)],
        },
      }, this.data(), this.plot);
    }

    // Shades the intervals with batches from a cache.
    bands(u) {
      const { ctx, bbox } = u;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.fillStyle = tone("replay-band");
      for (const [from, to] of this.replays) {
        const left = u.valToPos(from, "x", true);
        const wide = Math.max(1, u.valToPos(to, "x", true) - left);
        ctx.fillRect(left, bbox.top, wide, bbox.height);
        if (wide > 44 * devicePixelRatio && this.chart.id === "step") {
          ctx.save();
          ctx.fillStyle = tone("tone-replay");
          ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
          ctx.textBaseline = "top";
          ctx.fillText("replay", left + 5 * devicePixelRatio, bbox.top + 4 * devicePixelRatio);
          ctx.restore();
        }
      }
      ctx.restore();
    }

    // Draws the values that are constant over the run, with their labels.
    marks(u) {
      const { ctx, bbox } = u;
      for (const mark of this.chart.marks) {
        const y = Math.round(u.valToPos(mark.value, "y", true));
        if (y < bbox.top || y > bbox.top + bbox.height) continue;
        ctx.save();
        ctx.strokeStyle = tone(`tone-${mark.tone}`);
        ctx.lineWidth = 1.5 * devicePixelRatio;
        ctx.setLineDash([7 * devicePixelRatio, 4 * devicePixelRatio]);
        ctx.beginPath();
        ctx.moveTo(bbox.left, y);
        ctx.lineTo(bbox.left + bbox.width, y);
        ctx.stroke();
        ctx.font = `600 ${12 * devicePixelRatio}px system-ui, sans-serif`;
        ctx.textAlign = "right";
        ctx.textBaseline = "bottom";
        const right = bbox.left + bbox.width - 4 * devicePixelRatio;
        const wide = ctx.measureText(mark.label).width;
        const above = y - 16 * devicePixelRatio > bbox.top;
        const bottom = above ? y - 3 * devicePixelRatio : y + 17 * devicePixelRatio;
        ctx.fillStyle = tone("card");
        ctx.globalAlpha = 0.85;
        ctx.fillRect(right - wide - 4, bottom - 14 * devicePixelRatio, wide + 8, 15 * devicePixelRatio);
        ctx.globalAlpha = 1;
        ctx.fillStyle = tone(`tone-${mark.tone}`);
        ctx.fillText(mark.label, right, bottom);
        ctx.restore();
      }
    }

    // Shows the numbers under the pointer.
    point(u) {
      const at = u.cursor.idx;
      // Synchronised charts share the cursor, but only the chart under the pointer shows its numbers.
      const pointed = this.plot.matches(":hover") || document.activeElement === this.plot;
      if (at == null || u.cursor.left < 0 || !pointed) {
        this.tip.hidden = true;
        return;
      }
      this.tip.replaceChildren();
      const when = clock(this.atS[at]);
      const inReplay = this.replays.some(([a, b]) => this.atS[at] >= a && this.atS[at] <= b);
      this.tip.append(element("div", "when", inReplay ? `${when}, replay` : when));
      this.chart.lines.forEach((line, number) => {
        if (line.values[at] == null || this.hidden.has(line.name)) return;
        const row = element("div");
        const name = element("span", "", line.name);
        name.style.color = this.colours[number];
        row.append(name, element("b", "", digits(line.values[at], this.chart.unit)));
        this.tip.append(row);
      });
      this.tip.hidden = false;
      const left = u.bbox.left / devicePixelRatio + u.cursor.left;
      const room = this.plot.clientWidth - this.tip.offsetWidth;
      const beside = left + 14 > room ? left - this.tip.offsetWidth - 14 : left + 14;
      this.tip.style.left = `${Math.max(0, Math.min(beside, room))}px`;
      this.tip.style.top = "10px";
    }

    move(event) {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || !this.drawn) return;
      event.preventDefault();
      const u = this.drawn;
      const from = u.cursor.idx ?? (step > 0 ? -1 : this.atS.length);
      const at = Math.max(0, Math.min(this.atS.length - 1, from + step));
      u.setCursor({ left: u.valToPos(this.atS[at], "x"), top: 10 });
    }

    // Shows the legend with the latest numbers, and the same in words for screen readers.
    describe() {
      const words = [];
      const items = this.chart.lines.map((line, at) => {
        const latest = line.values.filter((value) => value != null).pop();
        const text = latest == null ? "" : digits(latest, this.chart.unit);
        words.push(`${line.name} ${text}`);
        const button = element("button");
        button.type = "button";
        button.setAttribute("aria-pressed", String(!this.hidden.has(line.name)));
        const swatch = element("i");
        swatch.style.background = this.colours?.[at] ?? "";
        button.append(swatch, element("span", "", line.name), element("b", "", text));
        button.addEventListener("click", () => this.toggle(line.name, at));
        const item = element("li");
        item.append(button);
        return item;
      });
      const focused = [...this.legend.children].findIndex((item) => item.contains(document.activeElement));
      this.legend.replaceChildren(...items);
      this.legend.children[focused]?.firstChild.focus();
      const marks = this.chart.marks.map((mark) => mark.label);
      this.plot.setAttribute("aria-label",
        `${this.chart.title}, latest: ${[...words, ...marks].join("; ")}. Arrow keys move along.`);
    }

    toggle(name, at) {
      if (!this.hidden.delete(name)) this.hidden.add(name);
      this.drawn?.setSeries(at + 1, { show: !this.hidden.has(name) });
      this.describe();
    }

    update(chart, atS, replays) {
      const before = this.shape();
      const zoomed = this.drawn && this.isZoomed();
      Object.assign(this, { chart, atS, replays });
      if (this.shape() !== before) this.again();
      else if (this.drawn) {
        this.drawn.setData(this.data(), !zoomed);
        if (zoomed) this.drawn.redraw();
      }
      this.draw();
    }

    isZoomed() {
      const { min, max } = this.drawn.scales.x;
      const times = this.drawn.data[0];
      return times.length > 1 && (min > times[0] || max < times[times.length - 1]);
    }

    again() {
      this.drawn?.destroy();
      this.drawn = null;
      this.draw();
    }

    fit() {
      const width = this.plot.clientWidth;
      if (this.drawn && width > 0 && width !== this.drawn.width) {
        this.drawn.setSize({ width, height: this.height });
      } else if (!this.drawn) this.draw();
    }
  }
  return { Chart };
})();
