// Draws instances of a few shapes with WebGL 2: two depth passes for shadows, a mirrored pass, and the picture.

const INSTANCE = 16;                       // floats per instance: position h, quaternion, scale kind, colour
const MAP_SIZE = 2048;
// From a good graphics card down to none at all: pixels per CSS pixel, shadow samples, whether the floor reflects.
const QUALITY = [{ ratio: 2, taps: 16, mirror: true }, { ratio: 1, taps: 8, mirror: true },
  { ratio: 0.75, taps: 5, mirror: false }, { ratio: 0.5, taps: 4, mirror: false }];
const FOG = [0.86, 0.90, 0.95];
const SUN = unit([0.42, -0.55, 1.0]);

function compile(gl, vertex, fragment) {
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
  const at = {};
  for (let i = 0; i < gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS); i++) {
    const name = gl.getActiveUniform(program, i).name;
    at[name] = gl.getUniformLocation(program, name);
  }
  return { program, at };
}

// A depth texture that samples as 0 (hidden) to 1 (lit), and its framebuffer.
function depthMap(gl) {
  const texture = gl.createTexture(), frame = gl.createFramebuffer();
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.texStorage2D(gl.TEXTURE_2D, 1, gl.DEPTH_COMPONENT24, MAP_SIZE, MAP_SIZE);
  for (const [key, value] of [[gl.TEXTURE_MIN_FILTER, gl.LINEAR], [gl.TEXTURE_MAG_FILTER, gl.LINEAR],
    [gl.TEXTURE_WRAP_S, gl.CLAMP_TO_EDGE], [gl.TEXTURE_WRAP_T, gl.CLAMP_TO_EDGE],
    [gl.TEXTURE_COMPARE_MODE, gl.COMPARE_REF_TO_TEXTURE], [gl.TEXTURE_COMPARE_FUNC, gl.LEQUAL]]) {
    gl.texParameteri(gl.TEXTURE_2D, key, value);
  }
  gl.bindFramebuffer(gl.FRAMEBUFFER, frame);
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.DEPTH_ATTACHMENT, gl.TEXTURE_2D, texture, 0);
  return { texture, frame };
}

class Renderer {
  constructor(canvas, meshes) {
    const gl = canvas.getContext("webgl2", { antialias: true, alpha: false, preserveDrawingBuffer: true });
    if (!gl) throw new Error("This browser offers no WebGL 2, which the replay needs.");
    this.gl = gl;
    this.quality = 0;
    this.canvas = canvas;
    this.shapes = new Map(Object.entries(meshes).map(([name, mesh]) => [name, this.upload(mesh)]));
    this.depth = compile(gl, DEPTH_VERTEX, DEPTH_FRAGMENT);
    this.shade = compile(gl, SHADE_VERTEX, SHADE_FRAGMENT);
    this.sky = compile(gl, SKY_VERTEX, SKY_FRAGMENT);
    this.sunMap = depthMap(gl);
    this.skyMap = depthMap(gl);
    this.empty = gl.createVertexArray();
  }

  upload(mesh) {
    const gl = this.gl, vao = gl.createVertexArray(), instances = gl.createBuffer();
    gl.bindVertexArray(vao);
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER, mesh.vertices, gl.STATIC_DRAW);
    for (const [index, size, offset] of [[0, 3, 0], [1, 3, 12], [2, 1, 24]]) {
      gl.enableVertexAttribArray(index);
      gl.vertexAttribPointer(index, size, gl.FLOAT, false, 28, offset);
    }
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, mesh.triangles, gl.STATIC_DRAW);
    gl.bindBuffer(gl.ARRAY_BUFFER, instances);
    for (let k = 0; k < 4; k++) {
      gl.enableVertexAttribArray(3 + k);
      gl.vertexAttribPointer(3 + k, 4, gl.FLOAT, false, 4 * INSTANCE, 16 * k);
      gl.vertexAttribDivisor(3 + k, 1);
    }
    return { vao, instances, size: mesh.triangles.length };
  }

  // layer: Map from shape name to a flat array of instances.
  paint(layer) {
    const gl = this.gl;
    for (const [name, values] of layer) {
      const shape = this.shapes.get(name);
      if (!shape || !values.length) continue;
      gl.bindVertexArray(shape.vao);
      gl.bindBuffer(gl.ARRAY_BUFFER, shape.instances);
      gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(values), gl.DYNAMIC_DRAW);
      gl.drawElementsInstanced(gl.TRIANGLES, shape.size, gl.UNSIGNED_INT, 0, values.length / INSTANCE);
    }
  }

  // Depth of the solid things as seen by a lamp at `direction`, over a square of half-width `half` about `centre`.
  castShadow(map, direction, centre, half, solid) {
    const gl = this.gl, up = Math.abs(direction[2]) > 0.999 ? [0, 1, 0] : [0, 0, 1];
    // Snapping the centre to whole texels keeps shadow edges still while the camera follows.
    const texel = 2 * half / MAP_SIZE, right = unit(cross(up, direction)), above = cross(direction, right);
    const snapped = add(add(times(right, Math.round(dot(centre, right) / texel) * texel),
      times(above, Math.round(dot(centre, above) / texel) * texel)), times(direction, dot(centre, direction)));
    const matrix = matmul(orthographic(half, 0, 8 * half), lookAt(add(snapped, times(direction, 4 * half)), snapped, up));
    gl.bindFramebuffer(gl.FRAMEBUFFER, map.frame);
    gl.viewport(0, 0, MAP_SIZE, MAP_SIZE);
    gl.clear(gl.DEPTH_BUFFER_BIT);
    gl.useProgram(this.depth.program);
    gl.uniformMatrix4fv(this.depth.at.uLight, false, matrix);
    gl.disable(gl.CULL_FACE);
    this.paint(solid);
    return matrix;
  }

  // Draw more coarsely from now on.
  coarsen() { this.quality = Math.min(this.quality + 1, QUALITY.length - 1); }

  resize() {
    const ratio = Math.min(window.devicePixelRatio || 1, QUALITY[this.quality].ratio);
    const width = Math.max(1, Math.round(this.canvas.clientWidth * ratio));
    const height = Math.max(1, Math.round(this.canvas.clientHeight * ratio));
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
  }

  // view: {eye, target, fovy, reach, checker}; layers: {solid, ground, glass, glow}; floor: {point, normal} or null.
  draw(view, layers, floor) {
    const gl = this.gl;
    this.resize();
    gl.enable(gl.DEPTH_TEST);
    gl.disable(gl.BLEND);
    gl.depthMask(true);
    // The shadow square covers what the camera looks at, and never less than the subject.
    const half = clamp(norm(sub(view.eye, view.target)) * 0.75, 1.3 * view.reach, 6 * view.reach);
    const sun = this.castShadow(this.sunMap, SUN, view.target, half, layers.solid);
    const sky = this.castShadow(this.skyMap, [0, 0, 1], view.target, half, layers.solid);
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    this.drawSky(view);
    this.startShading(view, sun, sky, half);
    this.drawWorld(view, layers, floor);
  }

  drawSky(view) {
    const gl = this.gl, forward = unit(sub(view.target, view.eye)), right = unit(cross(forward, [0, 0, 1]));
    const tall = Math.tan(view.fovy / 2), wide = tall * this.canvas.width / this.canvas.height;
    gl.useProgram(this.sky.program);
    gl.bindVertexArray(this.empty);
    gl.uniform3fv(this.sky.at.uForward, forward);
    gl.uniform3fv(this.sky.at.uRight, times(right, wide));
    gl.uniform3fv(this.sky.at.uUp, times(cross(right, forward), tall));
    gl.uniform3fv(this.sky.at.uFog, FOG);
    gl.disable(gl.DEPTH_TEST);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    gl.enable(gl.DEPTH_TEST);
  }

  startShading(view, sun, sky, half) {
    const gl = this.gl, at = this.shade.at, distance = norm(sub(view.eye, view.target));
    gl.useProgram(this.shade.program);
    const near = Math.max(distance * 0.01, 1e-4), far = distance + 80 * view.reach;
    const lens = perspective(view.fovy, this.canvas.width / this.canvas.height, near, far);
    lens[9] = -0.08;                       // the picture's middle, a little above the window's: the controls take the bottom
    this.viewMatrix = matmul(lens, lookAt(view.eye, view.target, [0, 0, 1]));
    gl.uniform3fv(at.uEye, view.eye);
    gl.uniform3fv(at.uFocus, view.target);
    gl.uniform3fv(at.uSun, SUN);
    gl.uniform3fv(at.uFog, FOG);
    gl.uniform1f(at.uReach, Math.max(view.reach, half / 3));
    gl.uniform1i(at.uTaps, QUALITY[this.quality].taps);
    gl.uniform1f(at.uChecker, view.checker);
    gl.uniformMatrix4fv(at.uSunMatrix, false, sun);
    gl.uniformMatrix4fv(at.uSkyMatrix, false, sky);
    for (const [unitIndex, map, name] of [[0, this.sunMap, "uSunMap"], [1, this.skyMap, "uSkyMap"]]) {
      gl.activeTexture(gl.TEXTURE0 + unitIndex);
      gl.bindTexture(gl.TEXTURE_2D, map.texture);
      gl.uniform1i(at[name], unitIndex);
    }
  }

  drawWorld(view, layers, floor) {
    const gl = this.gl, at = this.shade.at;
    const mirrored = QUALITY[this.quality].mirror && floor && dot(sub(view.eye, floor.point), floor.normal) > 0;
    gl.uniform1f(at.uOpacity, 1);
    gl.uniform1f(at.uReflect, mirrored ? 0.16 : 0);
    gl.uniform4fv(at.uClip, [0, 0, 0, 1]);
    gl.enable(gl.CULL_FACE);
    if (mirrored) {
      gl.uniformMatrix4fv(at.uView, false, matmul(this.viewMatrix, mirror(floor.point, floor.normal)));
      gl.uniform4fv(at.uClip, [...floor.normal, -dot(floor.normal, floor.point)]);
      gl.frontFace(gl.CW);
      this.paint(layers.solid);
      gl.frontFace(gl.CCW);
      gl.uniform4fv(at.uClip, [0, 0, 0, 1]);
      // The mirror image must not hide the floor that is drawn over it.
      gl.clear(gl.DEPTH_BUFFER_BIT);
    }
    gl.uniformMatrix4fv(at.uView, false, this.viewMatrix);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    this.paint(layers.ground);
    gl.disable(gl.BLEND);
    this.paint(layers.solid);
    gl.enable(gl.BLEND);
    // Marks first faintly through everything, then fully where nothing hides them.
    gl.disable(gl.DEPTH_TEST);
    gl.uniform1f(at.uOpacity, 0.45);
    this.paint(layers.glow);
    gl.enable(gl.DEPTH_TEST);
    gl.uniform1f(at.uOpacity, 1);
    this.paint(layers.glow);
    gl.depthMask(false);
    this.paint(layers.glass);
    gl.depthMask(true);
    gl.disable(gl.BLEND);
  }
}
