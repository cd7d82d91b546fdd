// Playback, controls and the drawing loop.

const SPEEDS = [0.05, 0.1, 0.25, 0.5, 1, 2, 4];
const PLAY_ICON = "M7 4.5v15l12.5-7.5z", PAUSE_ICON = "M6.5 5h4v14h-4zM13.5 5h4v14h-4z";
const $ = (id) => document.getElementById(id);

class Player {
  constructor(data) {
    this.data = data;
    this.view = data.header.view;
    this.world = new World(data);
    this.begin = data.arrays.time[0];
    this.end = data.arrays.time[data.arrays.time.length - 1];
    this.time = this.begin;
    this.speed = 1;
    this.playing = this.end > this.begin;
    this.show = { points: true, forces: true, hidden: false, follow: this.view.follow };
    this.still = this.view.center;         // where the camera looks while it does not follow
    this.dirty = true;
    this.renderer = new Renderer($("view"), this.world.meshes());
    this.camera = new Camera(this.view, $("view"), () => { this.dirty = true; });
    this.fillPage();
    this.listen();
    this.readHash();
    window.addEventListener("hashchange", () => this.readHash());
    requestAnimationFrame((now) => this.tick(now));
  }

  fillPage() {
    const { title, geoms, has_contacts } = this.data.header;
    $("title").textContent = title;
    $("speed").append(...SPEEDS.map((speed) => new Option(`${speed}×`, speed, speed === 1, speed === 1)));
    for (const name of ["points", "forces"]) $(name).hidden = !has_contacts;
    $("hidden").hidden = !geoms.some((geom) => geom.hidden);
    for (const name of ["points", "forces", "hidden"]) if ($(name).hidden) $(name).style.display = "none";
  }

  listen() {
    $("play").addEventListener("click", () => this.setPlaying(!this.playing));
    $("speed").addEventListener("change", () => { this.speed = Number($("speed").value); $("speed").blur(); });
    $("reset").addEventListener("click", () => this.resetView());
    for (const name of Object.keys(this.show)) $(name).addEventListener("click", () => this.toggle(name));
    const track = $("track");
    const scrub = (event) => {
      const box = track.getBoundingClientRect();
      this.seek(mix(this.begin, this.end, clamp((event.clientX - box.left) / box.width, 0, 1)));
    };
    track.addEventListener("pointerdown", (event) => { track.setPointerCapture(event.pointerId); scrub(event); });
    track.addEventListener("pointermove", (event) => { if (event.buttons) scrub(event); });
    window.addEventListener("resize", () => { this.dirty = true; });
    window.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const frame = 1 / 60, actions = {
      " ": () => this.setPlaying(!this.playing),
      ArrowLeft: () => this.step(-(event.shiftKey ? 10 : 1) * frame), ArrowRight: () => this.step((event.shiftKey ? 10 : 1) * frame),
      Home: () => this.seek(this.begin), End: () => this.seek(this.end),
      c: () => this.toggle("points"), f: () => this.toggle("forces"), h: () => this.toggle("hidden"),
      t: () => this.toggle("follow"), r: () => this.resetView(),
      "-": () => this.changeSpeed(-1), "+": () => this.changeSpeed(1), "=": () => this.changeSpeed(1),
    };
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  setPlaying(playing) {
    if (playing && this.time >= this.end) this.time = this.begin;
    this.playing = playing;
    this.dirty = true;
  }

  step(dt) { this.playing = false; this.seek(this.time + dt); }

  seek(time) { this.time = clamp(time, this.begin, this.end); this.dirty = true; }

  toggle(name) {
    if (name === "follow") {
      // Stay where the subject is when letting go, and find it again when following.
      if (this.show.follow) this.still = focusAt(this.data, this.time);
      else this.camera.offset = [0, 0, 0];
    }
    this.show[name] = !this.show[name];
    this.dirty = true;
  }

  resetView() {
    this.show.follow = this.view.follow;
    this.still = this.view.center;
    this.camera.reset();
  }

  changeSpeed(by) {
    const at = SPEEDS.indexOf(this.speed);
    this.speed = SPEEDS[clamp((at < 0 ? 4 : at) + by, 0, SPEEDS.length - 1)];
    $("speed").value = String(this.speed);
  }

  // #t=1.2&paused&speed=0.5&azimuth=40&elevation=20&zoom=1.5&contacts=0&forces=0&hidden=1&follow=0&bare ; angles in degrees
  readHash() {
    const hash = new URLSearchParams(location.hash.slice(1));
    const number = (name) => (hash.has(name) && hash.get(name) !== "" && isFinite(hash.get(name)) ? Number(hash.get(name)) : null);
    const flag = (name, now) => (hash.has(name) ? hash.get(name) !== "0" : now);
    if (number("t") !== null) this.seek(number("t"));
    if (hash.has("paused")) this.playing = hash.get("paused") === "0";
    if (number("speed") > 0) { this.speed = number("speed"); $("speed").value = String(this.speed); }
    if (number("azimuth") !== null) this.camera.azimuth = number("azimuth") * Math.PI / 180;
    if (number("elevation") !== null) this.camera.elevation = clamp(number("elevation") * Math.PI / 180, -1.5, 1.55);
    if (number("zoom") > 0) this.camera.distance = this.camera.fit() / number("zoom");
    this.show.points = flag("contacts", this.show.points);
    for (const name of ["forces", "hidden", "follow"]) this.show[name] = flag(name, this.show[name]);
    document.body.classList.toggle("bare", flag("bare", false));
    this.dirty = true;
  }

  tick(now) {
    const passed = Math.min((now - (this.before ?? now)) / 1000, 0.5);
    this.before = now;
    this.watchSpeed(passed);
    if (this.playing) {
      this.time += passed * this.speed;
      // A short rest on the last picture, then again from the start.
      if (this.time > this.end + 0.6 * this.speed) this.time = this.begin;
      this.dirty = true;
    }
    if (this.dirty) {
      this.dirty = false;
      this.paint();
    }
    requestAnimationFrame((next) => this.tick(next));
  }

  // Where pictures take long, as without a graphics card, draw more coarsely until the motion is fluent.
  watchSpeed(passed) {
    this.pictures = (this.pictures || 0) + 1;
    // The first pictures wait for shaders to compile.
    if (!this.playing || document.hidden || this.pictures < 4) { this.lost = 0; return; }
    this.lost = passed > 0.045 ? (this.lost || 0) + passed : 0.8 * (this.lost || 0);
    if (this.lost > 0.6) { this.lost = 0; this.renderer.coarsen(); }
  }

  paint() {
    const time = clamp(this.time, this.begin, this.end), { layers, contacts } = this.world.at(time, this.show);
    const place = this.camera.place(this.show.follow ? focusAt(this.data, time) : this.still);
    const checker = roundLength(0.45 * this.view.reach);
    this.renderer.draw({ ...place, reach: this.view.reach, checker }, layers, this.world.floor());
    this.paintPage(time, contacts);
    this.paintTrack(time);
  }

  paintPage(time, contacts) {
    const digits = this.end - this.begin < 1 ? 3 : 2;
    $("clock").innerHTML = `${time.toFixed(digits)} <small>/ ${this.end.toFixed(digits)} s</small>`;
    $("playicon").setAttribute("d", this.playing ? PAUSE_ICON : PLAY_ICON);
    for (const [name, on] of Object.entries(this.show)) {
      $(name).classList.toggle("on", on);
      $(name).setAttribute("aria-pressed", on);
    }
    const total = contacts.reduce((sum, { force }) => sum + norm(force), 0);
    const { has_contacts, subtitle } = this.data.header;
    $("readout").textContent = [subtitle, has_contacts ? `${contacts.length} contact${contacts.length === 1 ? "" : "s"}, ${forceText(total)}` : ""]
      .filter(Boolean).join("  ·  ");
    this.paintScale(has_contacts && this.show.forces);
  }

  // A bar as long as an arrow of a round force is at the camera's target.
  paintScale(visible) {
    $("scale").style.visibility = visible ? "visible" : "hidden";
    const pixels = $("view").clientHeight / (2 * this.camera.distance * Math.tan(FOVY / 2));
    const force = roundLength(48 / (pixels * this.view.force_scale));
    $("scalebar").style.height = `${force * this.view.force_scale * pixels}px`;
    $("scaletext").textContent = forceText(force);
  }

  // Scrub bar: the greatest total contact force around each moment, the part played, and a handle.
  paintTrack(time) {
    const track = $("track"), ratio = Math.min(window.devicePixelRatio || 1, 2);
    const width = track.clientWidth, height = track.clientHeight, pen = track.getContext("2d");
    if (track.width !== Math.round(width * ratio)) { track.width = Math.round(width * ratio); track.height = Math.round(height * ratio); }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const { time: times_, load } = this.data.arrays, x = (t) => width * (t - this.begin) / (this.end - this.begin || 1);
    const top = this.view.load_top || 1, base = height - 8;
    const chart = new Path2D();
    chart.moveTo(0, base);
    for (let i = 0; i < times_.length; i++) chart.lineTo(x(times_[i]), base - (base - 3) * Math.min(1, load[i] / top));
    chart.lineTo(width, base);
    pen.fillStyle = "rgba(228, 87, 46, .20)";
    pen.fill(chart);
    pen.save();
    pen.beginPath();
    pen.rect(0, 0, x(time), height);
    pen.clip();
    pen.fillStyle = "rgba(228, 87, 46, .55)";
    pen.fill(chart);
    pen.restore();
    pen.fillStyle = "rgba(29, 39, 51, .16)";
    pen.fillRect(0, base, width, 3);
    pen.fillStyle = "#1d2733";
    pen.fillRect(0, base, x(time), 3);
    pen.beginPath();
    pen.arc(clamp(x(time), 6, width - 6), base + 1.5, 6, 0, 7);
    pen.fill();
    track.setAttribute("aria-valuenow", time.toFixed(2));
    track.setAttribute("aria-valuemin", this.begin.toFixed(2));
    track.setAttribute("aria-valuemax", this.end.toFixed(2));
  }
}

function forceText(newton) {
  if (newton >= 1e4) return `${(newton / 1000).toPrecision(3)} kN`;
  return `${newton >= 100 ? newton.toFixed(0) : Number(newton.toPrecision(3))} N`;
}

function fail(error) {
  $("message").hidden = false;
  $("message").textContent = `The replay cannot be shown. ${error.message}`;
  throw error;
}

readData().then((data) => { window.ukemiReplay = new Player(data); }).catch(fail);
