// What to draw at one moment: instances of shapes, sorted into layers.

const POINT_COLOR = [0.98, 0.70, 0.05], FORCE_COLOR = [0.90, 0.24, 0.10];

const instance = (pos, h, quat, scale, kind, color) => [...pos, h, ...quat, ...scale, kind, ...color];

// A round length (1, 2 or 5 times a power of ten) near `x`.
function roundLength(x) {
  const power = Math.pow(10, Math.floor(Math.log10(x)));
  const lead = x / power;
  return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
}

class World {
  constructor(data) {
    this.data = data;
    this.geoms = data.header.geoms;
    this.reach = data.header.view.reach;
    this.pos = new Float32Array(3 * this.geoms.length);
    this.quat = new Float32Array(4 * this.geoms.length);
    this.farthest = this.farthestFocus();
  }

  meshes() {
    const meshes = { sphere: sphereMesh(), capsule: capsuleMesh(), cylinder: cylinderMesh(), box: boxMesh(),
      plane: planeMesh(), arrow: arrowMesh() };
    for (let k = 0; k < this.data.header.meshes; k++) {
      meshes[`mesh${k}`] = facetMesh(this.data.arrays[`mesh${k}_points`], this.data.arrays[`mesh${k}_faces`]);
    }
    return meshes;
  }

  farthestFocus() {
    const focus = this.data.arrays.focus;
    let far = 0;
    for (let i = 0; i < focus.length; i += 3) far = Math.max(far, Math.hypot(focus[i], focus[i + 1], focus[i + 2]));
    return far;
  }

  // The layers at a time; `show` says what the user wants to see.
  at(time, show) {
    const layers = { solid: new Map(), ground: new Map(), glass: new Map(), glow: new Map() };
    const put = (layer, shape, values) => {
      if (!layers[layer].has(shape)) layers[layer].set(shape, []);
      layers[layer].get(shape).push(...values);
    };
    const frame = posesAt(this.data, time, this.pos, this.quat);
    this.geoms.forEach((geom, g) => this.putGeom(geom, g, show, put));
    const contacts = contactsAt(this.data, frame);
    this.putContacts(contacts, show, put);
    return { layers, contacts };
  }

  putGeom(geom, g, show, put) {
    if (geom.hidden && !show.hidden) return;
    const shape = geom.mesh === null ? geom.shape : `mesh${geom.mesh}`, scale = geom.scale, h = geom.cap;
    if (!shape) return;
    const pos = this.pos.subarray(3 * g, 3 * g + 3), quat = this.quat.subarray(4 * g, 4 * g + 4);
    if (shape === "plane") {
      // The fog hides where the drawn square stops.
      const endless = 60 * this.reach + 2 * this.farthest;
      const half = [0, 1].map((k) => (this.isEndless(scale[k]) ? endless : scale[k]));
      // Mostly a light grey with a hint of the file's colour: a strong floor would take the eye off the robot.
      const tone = [0, 1, 2].map((k) => mix(geom.rgba[k], [0.64, 0.66, 0.70][k], 0.78));
      put("ground", shape, instance(pos, 0, quat, [...half, 1], 1, [...tone, geom.rgba[3]]));
      return;
    }
    if (geom.hidden) {
      put("glass", shape, instance(pos, h, quat, scale, 0, [0.20, 0.55, 0.62, 0.38]));
    } else {
      put(geom.rgba[3] < 0.99 ? "glass" : "solid", shape,
        instance(pos, h, quat, scale, geom.striped ? 3 : 0, geom.rgba));
    }
  }

  // Planes collide without end whatever their size, which is for pictures only: none at all, or a wide one, is
  // drawn without end too; a small one, such as the cloth of a table, is left as it is.
  isEndless(half) { return half <= 0 || half > 3 * this.reach; }

  putContacts(contacts, show, put) {
    const mark = this.data.header.view.mark, dotRadius = 0.014 * mark, scale = this.data.header.view.force_scale;
    for (const { point, force } of contacts) {
      const size = norm(force), length = Math.min(size * scale, 3 * mark);
      if (show.points) {
        put("glow", "sphere", instance(point, 0, [1, 0, 0, 0], [dotRadius, dotRadius, dotRadius], 2, [...POINT_COLOR, 1]));
      }
      if (show.forces && length > 1e-3 * mark) {
        const thick = Math.min(0.0115 * mark, length / 9);
        put("glow", "arrow", instance(point, length - 6 * thick, quatFromZ(unit(force)), [thick, thick, thick], 2,
          [...FORCE_COLOR, 1]));
      }
    }
  }

  // The endless plane in which things are mirrored, if there is exactly one such plane.
  floor() {
    const planes = this.geoms.map((geom, g) => g).filter((g) => this.geoms[g].shape === "plane" && !this.geoms[g].hidden);
    if (planes.length !== 1) return null;
    const g = planes[0], [x, y] = this.geoms[g].scale;
    if (!this.isEndless(x) || !this.isEndless(y)) return null;
    return { point: Array.from(this.pos.subarray(3 * g, 3 * g + 3)),
      normal: rotate(Array.from(this.quat.subarray(4 * g, 4 * g + 4)), [0, 0, 1]) };
  }
}
