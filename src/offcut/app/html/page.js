"use strict";
// The page's behaviour: theme, contents, values under the pointer, and spheres that turn.
(() => {
  const root = document.documentElement;

  // --- theme: as the system, light, dark -------------------------------------------------------
  const themes = ["system", "light", "dark"];
  const button = document.getElementById("theme");
  const remembered = () => { try { return localStorage.getItem("offcut-theme"); } catch { return null; } };
  const remember = (name) => { try { localStorage.setItem("offcut-theme", name); } catch { /* from disk, some browsers keep nothing */ } };
  function setTheme(name) {
    if (name === "system") delete root.dataset.theme; else root.dataset.theme = name;
    button.textContent = `Theme: ${name}`;
    document.dispatchEvent(new Event("themed"));
  }
  let theme = themes.includes(remembered()) ? remembered() : "system";
  setTheme(theme);
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    remember(theme);
    setTheme(theme);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("themed")));

  // --- contents: folded on narrow screens, marked where the reader is --------------------------
  const contents = document.querySelector("nav details");
  if (contents && matchMedia("(max-width: 60rem)").matches) contents.open = false;
  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      links.forEach((a) => a.classList.remove("here"));
      links.get(entry.target.id)?.classList.add("here");
    }
  }, { rootMargin: "-10% 0px -80% 0px" });
  document.querySelectorAll("main section").forEach((section) => seen.observe(section));

  // --- values under the pointer ------------------------------------------------------------------
  const digits = (v) => v === null ? "–" : (Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en") : String(Number(v.toPrecision(3))));
  function nearest(values, at) {
    let low = 0, high = values.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (values[middle] < at) low = middle; else high = middle;
    }
    return at - values[low] < values[high] - at ? low : high;
  }
  function hovered(picture) {
    const panels = JSON.parse(picture.querySelector("script").textContent).map((data) => panel(picture, data));
    const hide = () => panels.forEach((one) => one.hide());
    let current = panels[0];
    function follow(event) {
      const box = picture.getBoundingClientRect();
      const fraction = (event.clientX - box.left) / box.width;
      hide();
      const under = panels.find((one) => one.holds(fraction));
      if (!under) return;
      current = under;
      under.show(fraction);
    }
    picture.addEventListener("pointermove", follow);
    picture.addEventListener("pointerdown", follow);
    picture.addEventListener("pointerleave", hide);
    picture.addEventListener("blur", hide);
    picture.tabIndex = 0;
    picture.setAttribute("role", "group");
    picture.setAttribute("aria-label", "A picture; left and right arrows read its values");
    picture.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      hide();
      current.step(step);
    });
  }
  function panel(picture, data) {
    const [left, top, width, height] = data.box;
    const scale = (v, log) => (log ? Math.log10(v) : v);
    const part = (v, [a, b], log) => (scale(v, log) - scale(a, log)) / (scale(b, log) - scale(a, log));
    const make = (kind) => { const e = document.createElement("div"); e.className = kind; e.hidden = true; picture.append(e); return e; };
    const cursor = make("cursor"), tip = make("tip");
    tip.setAttribute("role", "status");
    const dots = data.series.map((s) => { const d = make("dot"); d.style.background = `var(--${s.colour || "blue"})`; return d; });
    // Curves of few points were measured there and nowhere else: the pointer snaps to them.
    const sparse = data.series.every((s) => s.x.length < 40);
    let share = 0.5;
    const hide = () => [cursor, tip, ...dots].forEach((e) => { e.hidden = true; });
    const holds = (fraction) => fraction >= left - 0.01 && fraction <= left + width + 0.01;
    function show(fraction) {
      const box = picture.getBoundingClientRect();
      share = Math.min(1, Math.max(0, (fraction - left) / width));
      const [a, b] = data.x.map((v) => scale(v, data.log[0]));
      let at = data.log[0] ? 10 ** (a + share * (b - a)) : a + share * (b - a);
      if (sparse && data.series.length) at = data.series[0].x[nearest(data.series[0].x, at)];
      const x = (left + part(at, data.x, data.log[0]) * width) * box.width;
      Object.assign(cursor.style, { left: `${x}px`, top: `${top * box.height}px`, height: `${height * box.height}px` });
      tip.replaceChildren();
      const head = document.createElement("b");
      head.textContent = `${data.label}: ${digits(at)}`;
      tip.append(head);
      data.series.forEach((s, i) => {
        const ends = [s.x[0], s.x[s.x.length - 1]];
        const inside = at >= Math.min(...ends) && at <= Math.max(...ends);
        const k = nearest(s.x, at), value = s.y[k];
        dots[i].hidden = !inside || value === null;
        if (dots[i].hidden) return;
        Object.assign(dots[i].style, {
          left: `${(left + part(s.x[k], data.x, data.log[0]) * width) * box.width}px`,
          top: `${(top + (1 - part(value, data.y, data.log[1])) * height) * box.height}px`,
        });
        const line = document.createElement("div"), key = document.createElement("span");
        key.className = "key";
        key.style.background = `var(--${s.colour || "blue"})`;
        const band = s.low ? ` (${digits(s.low[k])} to ${digits(s.high[k])})` : "";
        line.append(key, ` ${s.name}: ${digits(value)}${band}`);
        tip.append(line);
      });
      cursor.hidden = tip.hidden = false;
      const right = x + 14 + tip.offsetWidth > box.width;
      tip.style.left = `${Math.max(0, right ? x - 14 - tip.offsetWidth : x + 14)}px`;
      tip.style.top = `${top * box.height + 4}px`;
    }
    function step(direction) {
      if (!sparse || !data.series.length) { show(left + (share + 0.01 * direction) * width); return; }
      const places = data.series[0].x, [a, b] = data.x.map((v) => scale(v, data.log[0]));
      const at = data.log[0] ? 10 ** (a + share * (b - a)) : a + share * (b - a);
      const k = Math.min(places.length - 1, Math.max(0, nearest(places, at) + direction));
      show(left + part(places[k], data.x, data.log[0]) * width);
    }
    return { hide, holds, show, step };
  }
  // One picture that fails must not take the others with it; the console hears of it.
  const each = (selector, make) => document.querySelectorAll(selector).forEach((e) => { try { make(e); } catch (error) { console.error(error); } });
  each(".hovered", hovered);

  // --- spheres that turn ------------------------------------------------------------------------
  const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
  const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
  const unit = (a) => { const n = Math.hypot(...a) || 1; return a.map((v) => v / n); };
  function circle(centre, angle, count = 120) {
    const c = unit(centre);
    const e = unit(cross(c, Math.abs(c[2]) < 0.9 ? [0, 0, 1] : [1, 0, 0])), f = cross(c, e);
    return Array.from({ length: count + 1 }, (_, i) => {
      const t = (2 * Math.PI * i) / count;
      return c.map((v, k) => Math.cos(angle) * v + Math.sin(angle) * (Math.cos(t) * e[k] + Math.sin(t) * f[k]));
    });
  }
  function globe(box) {
    const data = JSON.parse(box.querySelector("script").textContent);
    const canvas = box.querySelector("canvas"), pen = canvas.getContext("2d");
    const middle = unit(data.columns.reduce((s, c) => s.map((v, k) => v + c.mode[k]), [0, 0, 0]));
    let azimuth = Math.atan2(middle[1], middle[0]), elevation = Math.max(-1.05, Math.min(1.05, Math.asin(middle[2])));
    
    const swatch = document.createElement("span");
    box.append(swatch);
    swatch.hidden = true;
    function colour(name) { swatch.style.color = `var(--${name})`; return getComputedStyle(swatch).color; }
    const grid = [];
    for (let t = 30; t < 180; t += 30) grid.push(circle([0, 0, 1], (t * Math.PI) / 180));
    for (let t = 0; t < 180; t += 30) grid.push(circle([-Math.sin((t * Math.PI) / 180), Math.cos((t * Math.PI) / 180), 0], Math.PI / 2));
    function draw() {
      const size = canvas.clientWidth, ratio = devicePixelRatio || 1;
      canvas.width = canvas.height = Math.round(size * ratio);
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      const r = size * 0.4, o = size / 2;
      const towards = [Math.cos(elevation) * Math.cos(azimuth), Math.cos(elevation) * Math.sin(azimuth), Math.sin(elevation)];
      const right = [-Math.sin(azimuth), Math.cos(azimuth), 0], up = cross(towards, right);
      const place = (v) => [o + r * dot(v, right), o - r * dot(v, up)];
      const ink = Object.fromEntries(["grey", "pale", "paper", "ink", "blue", "orange", "green"].map((n) => [n, colour(n)]));
      pen.clearRect(0, 0, size, size);
      const line = (points, near, style, width, dashes = []) => {
        pen.strokeStyle = style; pen.lineWidth = width; pen.setLineDash(dashes); pen.beginPath();
        let down = false;
        for (const p of points) {
          if ((dot(p, towards) >= 0) !== near) { down = false; continue; }
          const [x, y] = place(p);
          if (down) pen.lineTo(x, y); else pen.moveTo(x, y);
          down = true;
        }
        pen.stroke(); pen.setLineDash([]);
      };
      pen.beginPath(); pen.arc(o, o, r, 0, 2 * Math.PI);
      pen.strokeStyle = ink.grey; pen.lineWidth = 1.2; pen.stroke();
      for (const near of [false, true]) {
        pen.globalAlpha = near ? 1 : 0.28;
        grid.forEach((g) => line(g, near, ink.pale, near ? 1 : 0.7));
        data.axes.forEach((name, k) => {
          const axis = [0, 0, 0]; axis[k] = 1;
          if ((dot(axis, towards) >= 0) !== near) return;
          const [x, y] = place(axis), [tx, ty] = place(axis.map((v) => 1.13 * v));
          pen.strokeStyle = ink.grey; pen.lineWidth = 1; pen.beginPath(); pen.moveTo(x, y);
          pen.lineTo(...place(axis.map((v) => 1.07 * v))); pen.stroke();
          pen.fillStyle = ink.grey; pen.font = "13px system-ui, sans-serif"; pen.textAlign = "center"; pen.textBaseline = "middle";
          pen.fillText(name, tx, ty);
        });
        for (const column of data.columns) {
          pen.fillStyle = ink[column.colour];
          pen.strokeStyle = ink.paper; pen.lineWidth = 0.7;
          for (const p of column.points) {
            if ((dot(p, towards) >= 0) !== near) continue;
            const [x, y] = place(p);
            pen.beginPath(); pen.arc(x, y, 3, 0, 2 * Math.PI);
            pen.globalAlpha = near ? 0.75 : 0.25; pen.fill(); if (near) pen.stroke();
          }
        }
        pen.globalAlpha = near ? 1 : 0.28;
        for (const column of data.columns) {
          if ((dot(column.mode, towards) >= 0) === near) {
            pen.strokeStyle = ink[column.colour]; pen.lineWidth = 2.4; pen.beginPath(); pen.moveTo(o, o); pen.lineTo(...place(column.mode)); pen.stroke();
          }
          line(circle(column.mode, column.credible), near, ink[column.colour], 2.2);
          if (column.predictive !== null) line(circle(column.centre, column.predictive), near, ink[column.colour], 1.8, [7, 4]);
        }
      }
      pen.globalAlpha = 1;
      canvas.dataset.azimuth = azimuth.toFixed(4);
      canvas.dataset.elevation = elevation.toFixed(4);
    }
    function turn(dx, dy) {
      azimuth -= dx; elevation = Math.max(-1.5, Math.min(1.5, elevation + dy));
      requestAnimationFrame(draw);
    }
    let held = null;
    canvas.addEventListener("pointerdown", (event) => { held = [event.clientX, event.clientY]; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (!held) return;
      const speed = 2.5 / canvas.clientWidth;
      turn((event.clientX - held[0]) * speed, (event.clientY - held[1]) * speed);
      held = [event.clientX, event.clientY];
    });
    ["pointerup", "pointercancel"].forEach((kind) => canvas.addEventListener(kind, () => { held = null; }));
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
      if (!step) return;
      event.preventDefault();
      turn(...step);
    });
    const legend = box.querySelector(".legend");
    const degrees = (angle) => `${((angle * 180) / Math.PI).toPrecision(2)}°`;
    legend.append("Drag to turn. ");
    data.columns.forEach((column) => {
      const key = document.createElement("span");
      key.className = "key";
      key.style.background = `var(--${column.colour})`;
      const ahead = column.predictive === null ? "" : `, a new one within ${degrees(column.predictive)}`;
      legend.append(key, ` ${column.name}: mode within ${degrees(column.credible)}${ahead}. `);
    });
    document.addEventListener("themed", draw);
    new ResizeObserver(draw).observe(canvas);
    draw();
  }
  each(".globe", globe);
  root.dataset.ready = "yes";
})();
