// Triangle meshes of the unit shapes. A vertex is [x y z, nx ny nz, cap]: the shader scales x y z by the
// instance and then moves the vertex by cap * h along z, so that one capsule mesh serves every length.

// A surface of revolution about z. Each profile point is [radius, z, normal radius, normal z, cap].
function revolve(profile, segments) {
  const vertices = [], triangles = [];
  for (let i = 0; i <= segments; i++) {
    const angle = 2 * Math.PI * i / segments, c = Math.cos(angle), s = Math.sin(angle);
    for (const [r, z, nr, nz, cap] of profile) vertices.push(r * c, r * s, z, nr * c, nr * s, nz, cap);
  }
  const rows = profile.length;
  for (let i = 0; i < segments; i++) {
    for (let j = 0; j + 1 < rows; j++) {
      const a = i * rows + j, b = a + rows;
      triangles.push(a, b, b + 1, a, b + 1, a + 1);
    }
  }
  return { vertices: new Float32Array(vertices), triangles: new Uint32Array(triangles) };
}

function arc(from, to, count, cap) {
  const points = [];
  for (let i = 0; i <= count; i++) {
    const angle = mix(from, to, i / count), c = Math.cos(angle), s = Math.sin(angle);
    points.push([Math.max(c, 0), s, Math.max(c, 0), s, cap]);
  }
  return points;
}

const sphereMesh = () => revolve(arc(-Math.PI / 2, Math.PI / 2, 28, 0), 48);
const capsuleMesh = () => revolve([...arc(-Math.PI / 2, 0, 14, -1), ...arc(0, Math.PI / 2, 14, 1)], 40);
// A hairline bevel catches the light on the rim.
const cylinderMesh = () => revolve([[0, -1, 0, -1, 0], [0.97, -1, 0, -1, 0], [0.97, -1, 0.5, -0.87, 0], [1, -0.97, 0.87, -0.5, 0],
  [1, -0.97, 1, 0, 0], [1, 0.97, 1, 0, 0], [1, 0.97, 0.87, 0.5, 0], [0.97, 1, 0.5, 0.87, 0],
  [0.97, 1, 0, 1, 0], [0, 1, 0, 1, 0]], 48);
// Shaft from z = 0 to the cap and a head of fixed size on it.
const arrowMesh = () => revolve([[0, 0, 0, -1, 0], [1, 0, 1, 0, 0], [1, 0, 1, 0, 1], [1, 0, 0, -1, 1], [2.6, 0, 0, -1, 1],
  [2.6, 0, 0.92, 0.39, 1], [0, 6, 0.92, 0.39, 1]], 20);

function boxMesh() {
  const vertices = [], triangles = [];
  for (let axis = 0; axis < 3; axis++) {
    for (const sign of [-1, 1]) {
      const n = [0, 0, 0], u = [0, 0, 0], v = [0, 0, 0], base = vertices.length / 7;
      n[axis] = sign; u[(axis + 1) % 3] = sign; v[(axis + 2) % 3] = 1;
      for (const [s, t] of [[-1, -1], [1, -1], [1, 1], [-1, 1]]) {
        vertices.push(...add(add(n, times(u, s)), times(v, t)), ...n, 0);
      }
      triangles.push(base, base + 1, base + 2, base, base + 2, base + 3);
    }
  }
  return { vertices: new Float32Array(vertices), triangles: new Uint32Array(triangles) };
}

const planeMesh = () => ({
  vertices: new Float32Array([-1, -1, 0, 0, 0, 1, 0, 1, -1, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1, 0, -1, 1, 0, 0, 0, 1, 0]),
  triangles: new Uint32Array([0, 1, 2, 0, 2, 3]),
});

// A triangle mesh of the model. Corners get their own normal: the mean over neighbouring faces within 40 degrees,
// so that round parts look round and edges stay sharp.
function facetMesh(points, faces) {
  const count = faces.length / 3, normals = [], around = new Map();
  const key = (i) => `${points[3 * i]},${points[3 * i + 1]},${points[3 * i + 2]}`;
  const point = (i) => [points[3 * i], points[3 * i + 1], points[3 * i + 2]];
  for (let f = 0; f < count; f++) {
    const [a, b, c] = [0, 1, 2].map((k) => point(faces[3 * f + k]));
    normals.push(cross(sub(b, a), sub(c, a)));
    for (let k = 0; k < 3; k++) {
      const name = key(faces[3 * f + k]);
      if (!around.has(name)) around.set(name, []);
      around.get(name).push(f);
    }
  }
  const vertices = new Float32Array(21 * count), triangles = new Uint32Array(3 * count);
  for (let f = 0; f < count; f++) {
    const own = unit(normals[f]);
    for (let k = 0; k < 3; k++) {
      let sum = [0, 0, 0];
      for (const g of around.get(key(faces[3 * f + k]))) {
        if (dot(own, unit(normals[g])) > 0.766) sum = add(sum, normals[g]);
      }
      vertices.set([...point(faces[3 * f + k]), ...unit(sum), 0], 7 * (3 * f + k));
      triangles[3 * f + k] = 3 * f + k;
    }
  }
  return { vertices, triangles };
}
