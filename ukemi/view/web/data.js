// The recorded data: a JSON header that lists arrays, and one deflated blob in base64 that holds their bytes.

async function readData() {
  const header = JSON.parse(document.getElementById("header").textContent);
  const text = atob(document.getElementById("blob").textContent.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const arrays = {};
  for (const [name, entry] of Object.entries(header.arrays)) arrays[name] = unpack(buffer, entry);
  return { header, arrays };
}

// float32 and int32 are taken as they are, but where each int32 is a step from the one before; uint16 is a number line of 65536 marks from `low` to `low + 65535 * scale`
// for each column of the array's last two axes.
function unpack(buffer, entry) {
  const count = entry.shape.reduce((a, b) => a * b, 1);
  if (entry.dtype === "f4") return new Float32Array(buffer, entry.offset, count);
  if (entry.dtype === "i4") {
    const whole = new Int32Array(buffer, entry.offset, count);
    if (entry.steps) for (let i = 1; i < count; i++) whole[i] += whole[i - 1];
    return whole;
  }
  const marks = new Uint16Array(buffer, entry.offset, count), out = new Float32Array(count);
  const columns = entry.low.length;
  for (let i = 0; i < count; i++) out[i] = entry.low[i % columns] + entry.scale[i % columns] * marks[i];
  return out;
}

// Poses of all geoms at a time between two frames, written into pos (ng*3) and quat (ng*4).
function posesAt(data, time, pos, quat) {
  const { header, arrays } = data, moving = arrays.moving, many = moving.length;
  const [frame, share] = locate(arrays.time, time);
  const next = Math.min(frame + 1, arrays.time.length - 1);
  pos.set(arrays.rest_pos);
  quat.set(arrays.rest_quat);
  for (let m = 0; m < many; m++) {
    const g = moving[m], a = frame * many + m, b = next * many + m;
    for (let k = 0; k < 3; k++) pos[3 * g + k] = mix(arrays.pos[3 * a + k], arrays.pos[3 * b + k], share);
    let same = 0, length = 0;
    for (let k = 0; k < 4; k++) same += arrays.quat[4 * a + k] * arrays.quat[4 * b + k];
    const sign = same < 0 ? -1 : 1;
    for (let k = 0; k < 4; k++) {
      const value = mix(arrays.quat[4 * a + k], sign * arrays.quat[4 * b + k], share);
      quat[4 * g + k] = value;
      length += value * value;
    }
    for (let k = 0; k < 4; k++) quat[4 * g + k] /= Math.sqrt(length) || 1;
  }
  return frame + (share > 0.5 ? next - frame : 0);
}

// [frame, share]: time lies at `share` in 0..1 between this frame and the next.
function locate(times_, time) {
  let low = 0, high = times_.length - 1;
  if (time <= times_[0] || high === 0) return [0, 0];
  if (time >= times_[high]) return [high, 0];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (times_[middle] <= time) low = middle; else high = middle;
  }
  return [low, (time - times_[low]) / (times_[high] - times_[low])];
}

// Contacts of one frame: [{point, force}], force [N] in world axes.
function contactsAt(data, frame) {
  const { contact_start, contact_point, contact_force } = data.arrays, out = [];
  for (let c = contact_start[frame]; c < contact_start[frame + 1]; c++) {
    out.push({ point: Array.from(contact_point.subarray(3 * c, 3 * c + 3)),
      force: Array.from(contact_force.subarray(3 * c, 3 * c + 3)) });
  }
  return out;
}

// Where the camera should look at a time, when it follows.
function focusAt(data, time) {
  const { time: times_, focus } = data.arrays, [frame, share] = locate(times_, time);
  const next = Math.min(frame + 1, times_.length - 1);
  return [0, 1, 2].map((k) => mix(focus[3 * frame + k], focus[3 * next + k], share));
}
