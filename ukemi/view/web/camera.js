// An orbiting camera: mouse, touch and wheel.

const FOVY = 0.62;                         // [rad]

class Camera {
  constructor(view, canvas, changed) {
    this.view = view;
    this.canvas = canvas;
    this.changed = changed;
    this.pointers = new Map();
    this.reset();
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.release(event));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(clamp(event.deltaY, -120, 120) * 0.0016));
    }, { passive: false });
  }

  reset() {
    this.azimuth = this.view.azimuth;
    this.elevation = this.view.elevation;
    this.offset = [0, 0, 0];
    this.distance = 0;                     // chosen at the first picture, when the window's shape is known
    this.changed();
  }

  // Distance at which a ball of radius `reach` fills the window.
  fit() {
    const aspect = this.canvas.clientWidth / Math.max(1, this.canvas.clientHeight);
    const half = aspect < 1 ? Math.atan(Math.tan(FOVY / 2) * aspect) : FOVY / 2;
    return 1.12 * this.view.reach / Math.sin(half);
  }

  // Eye and target in the world when the subject is at `focus`.
  place(focus) {
    if (!this.distance) this.distance = this.fit();
    const target = add(focus, this.offset), a = this.azimuth, e = this.elevation;
    const back = [Math.cos(e) * Math.cos(a), Math.cos(e) * Math.sin(a), Math.sin(e)];
    return { eye: add(target, times(back, this.distance)), target, fovy: FOVY };
  }

  orbit(dx, dy) {
    this.azimuth -= dx * 0.006;
    this.elevation = clamp(this.elevation + dy * 0.006, -1.5, 1.55);
    this.changed();
  }

  pan(dx, dy) {
    const metre = 2 * this.distance * Math.tan(FOVY / 2) / Math.max(1, this.canvas.clientHeight);
    const a = this.azimuth, e = this.elevation;
    const right = [-Math.sin(a), Math.cos(a), 0];
    const up = [-Math.sin(e) * Math.cos(a), -Math.sin(e) * Math.sin(a), Math.cos(e)];
    this.offset = add(this.offset, add(times(right, -dx * metre), times(up, dy * metre)));
    this.changed();
  }

  zoom(factor) {
    this.distance = clamp(this.distance * factor, 0.05 * this.view.reach, 60 * this.view.reach);
    this.changed();
  }

  press(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    this.canvas.classList.add("dragging");
  }

  release(event) {
    this.pointers.delete(event.pointerId);
    if (!this.pointers.size) this.canvas.classList.remove("dragging");
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = [event.clientX, event.clientY], dx = now[0] - before[0], dy = now[1] - before[1];
    if (this.pointers.size === 2) {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
      const gap = (p) => Math.max(8, Math.hypot(p[0] - other[0], p[1] - other[1]));
      this.zoom(gap(before) / gap(now));
      this.pan(dx / 2, dy / 2);
    } else if (event.pointerType === "mouse" && (event.buttons & 6 || event.shiftKey)) {
      this.pan(dx, dy);
    } else {
      this.orbit(dx, dy);
    }
    this.pointers.set(event.pointerId, now);
  }
}
