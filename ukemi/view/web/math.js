// Vectors, quaternions (w x y z) and column-major 4x4 matrices: only what the replay needs. z points up.

const add = (a, b) => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
const sub = (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const times = (a, s) => [a[0] * s, a[1] * s, a[2] * s];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const norm = (a) => Math.hypot(a[0], a[1], a[2]);
const unit = (a) => times(a, 1 / (norm(a) || 1));
const clamp = (x, lo, hi) => Math.min(hi, Math.max(lo, x));
const mix = (a, b, s) => a + (b - a) * s;

function rotate(q, v) {
  const u = [q[1], q[2], q[3]];
  const t = times(cross(u, v), 2);
  return add(add(v, times(t, q[0])), cross(u, t));
}

// The rotation that takes +z to a unit direction.
function quatFromZ(direction) {
  if (direction[2] < -0.999999) return [0, 1, 0, 0];
  const q = [1 + direction[2], -direction[1], direction[0], 0];
  const length = Math.hypot(q[0], q[1], q[2]);
  return q.map((x) => x / length);
}

function matmul(a, b) {
  const out = new Float32Array(16);
  for (let column = 0; column < 4; column++) {
    for (let row = 0; row < 4; row++) {
      let sum = 0;
      for (let k = 0; k < 4; k++) sum += a[4 * k + row] * b[4 * column + k];
      out[4 * column + row] = sum;
    }
  }
  return out;
}

function perspective(fovy, aspect, near, far) {
  const f = 1 / Math.tan(fovy / 2);
  return new Float32Array([f / aspect, 0, 0, 0, 0, f, 0, 0,
    0, 0, (far + near) / (near - far), -1, 0, 0, 2 * far * near / (near - far), 0]);
}

function orthographic(half, near, far) {
  return new Float32Array([1 / half, 0, 0, 0, 0, 1 / half, 0, 0,
    0, 0, 2 / (near - far), 0, 0, 0, (far + near) / (near - far), 1]);
}

function lookAt(eye, target, up) {
  const back = unit(sub(eye, target));
  const right = unit(cross(up, back));
  const above = cross(back, right);
  return new Float32Array([right[0], above[0], back[0], 0, right[1], above[1], back[1], 0,
    right[2], above[2], back[2], 0, -dot(right, eye), -dot(above, eye), -dot(back, eye), 1]);
}

// Reflection of the world in the plane through `point` with unit `normal`.
function mirror(point, normal) {
  const d = -dot(point, normal);
  const [x, y, z] = normal;
  return new Float32Array([1 - 2 * x * x, -2 * x * y, -2 * x * z, 0, -2 * x * y, 1 - 2 * y * y, -2 * y * z, 0,
    -2 * x * z, -2 * y * z, 1 - 2 * z * z, 0, -2 * d * x, -2 * d * y, -2 * d * z, 1]);
}
