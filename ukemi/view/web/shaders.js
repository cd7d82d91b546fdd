// GLSL sources. Light is a warm key lamp with a soft shadow, plus a cool sky whose occlusion is read from a second
// shadow map that looks straight down (ambient occlusion at the cost of one depth pass).

const PLACE = `
layout(location = 0) in vec3 aPosition;
layout(location = 1) in vec3 aNormal;
layout(location = 2) in float aCap;
layout(location = 3) in vec4 iPosition;   // xyz, h
layout(location = 4) in vec4 iQuat;       // w x y z
layout(location = 5) in vec4 iScale;      // xyz, kind: 0 solid, 1 ground, 2 glow, 3 striped ball
layout(location = 6) in vec4 iColor;
vec3 spin(vec4 q, vec3 v) { vec3 t = 2.0 * cross(q.yzw, v); return v + q.x * t + cross(q.yzw, t); }
vec3 local() { return aPosition * iScale.xyz + vec3(0.0, 0.0, aCap * iPosition.w); }
`;

const DEPTH_VERTEX = `#version 300 es
precision highp float;
${PLACE}
uniform mat4 uLight;
void main() { gl_Position = uLight * vec4(spin(iQuat, local()) + iPosition.xyz, 1.0); }`;

const DEPTH_FRAGMENT = `#version 300 es
precision highp float;
void main() {}`;

const SHADE_VERTEX = `#version 300 es
precision highp float;
${PLACE}
uniform mat4 uView;
out vec3 vWorld, vNormal, vLocal;
flat out vec4 vColor;
flat out float vKind;
void main() {
  vLocal = local();
  vWorld = spin(iQuat, vLocal) + iPosition.xyz;
  vNormal = spin(iQuat, aNormal / iScale.xyz);
  vColor = iColor;
  vKind = iScale.w;
  gl_Position = uView * vec4(vWorld, 1.0);
}`;

const SHADE_FRAGMENT = `#version 300 es
precision highp float;
precision highp sampler2DShadow;
in vec3 vWorld, vNormal, vLocal;
flat in vec4 vColor;
flat in float vKind;
uniform vec3 uEye, uSun, uFocus, uFog;
uniform mat4 uSunMatrix, uSkyMatrix;
uniform sampler2DShadow uSunMap, uSkyMap;
uniform float uReach, uChecker, uOpacity, uReflect;
uniform int uTaps;
uniform vec4 uClip;                       // mirror pass: keep dot(normal, x) + w > 0
out vec4 color;

// A sunflower spiral: every beginning of the list is spread over the disc too, for machines that take fewer taps.
vec2 disc(int i) {
  float r = sqrt((float(i) + .5) / float(uTaps)), angle = 2.3999632 * float(i);
  return r * vec2(cos(angle), sin(angle));
}

float noise(vec2 p) { return fract(52.9829189 * fract(dot(p, vec2(.06711056, .00583715)))); }

float lit(sampler2DShadow map, mat4 matrix, vec3 at, float width, float bias) {
  vec3 p = (matrix * vec4(at, 1.0)).xyz * .5 + .5;
  float edge = max(abs(p.x - .5), abs(p.y - .5)) * 2.0;
  if (edge > 1.0 || p.z > 1.0) return 1.0;
  float angle = 6.2831853 * noise(gl_FragCoord.xy), c = cos(angle), s = sin(angle), sum = 0.0;
  for (int i = 0; i < uTaps; i++) {
    vec2 d = disc(i);
    sum += texture(map, vec3(p.xy + mat2(c, s, -s, c) * d * width, p.z - bias * (1.0 + length(d))));
  }
  return mix(sum / float(uTaps), 1.0, smoothstep(.85, 1.0, edge));
}

// Box-filtered checker: area average of the pattern over the pixel, so that it fades to grey and never shimmers.
float checker(vec2 p) {
  vec2 w = max(fwidth(p), 1e-4);
  vec2 a = abs(fract((p - .5 * w) * .5) - .5), b = abs(fract((p + .5 * w) * .5) - .5);
  vec2 i = 2.0 * (a - b) / w;
  return .5 - .5 * i.x * i.y;
}

vec3 shade(vec3 base, vec3 n, vec3 v, float gloss) {
  float facing = dot(n, uSun);
  float slope = clamp(1.0 - facing, 0.0, 1.0);
  vec3 raised = vWorld + n * (uReach * (.002 + .004 * slope));
  float sun = facing > 0.0 ? lit(uSunMap, uSunMatrix, raised, .0022, .0006) : 0.0;
  float sky = mix(lit(uSkyMap, uSkyMatrix, raised, .020, .0004), 1.0, .12);
  vec3 ambient = mix(vec3(.20, .18, .17), vec3(.46, .51, .60) * (.25 + .75 * sky), .5 + .5 * n.z);
  vec3 h = normalize(uSun + v);
  float shine = gloss * pow(max(dot(n, h), 0.0), 48.0) * sun;
  float rim = .22 * gloss * pow(1.0 - max(dot(n, v), 0.0), 4.0) * (.4 + .6 * sky);
  vec3 key = vec3(1.0, .945, .86) * (1.42 * max(facing, 0.0) * sun);
  return base * (ambient + key) + vec3(.55 * shine + rim);
}

void main() {
  if (dot(uClip.xyz, vWorld) + uClip.w < 0.0) discard;
  vec3 base = pow(vColor.rgb, vec3(2.2)), n = normalize(vNormal), v = normalize(uEye - vWorld);
  if (dot(n, v) < 0.0 && (vKind < .5 || vKind > 2.5)) n = n - 1.02 * dot(n, v) * v;
  n = normalize(n);
  float alpha = vColor.a * uOpacity, away = length(vWorld - uFocus) / uReach;
  vec3 light;
  if (vKind > 2.5) {
    // A band around the equator in whichever of light and dark stands out.
    float z = abs(vLocal.z) / length(vLocal), soft = fwidth(z);
    float bright = dot(base, vec3(.3, .6, .1));
    base = mix(base, bright > .45 ? base * .25 : mix(base, vec3(.92), .85), 1.0 - smoothstep(.17 - soft, .17 + soft, z));
  }
  if (vKind > 1.5 && vKind < 2.5) {
    light = base * (.72 + .38 * max(dot(n, normalize(v + uSun)), 0.0));
  } else if (vKind > .5 && vKind < 1.5) {
    float square = checker(vLocal.xy / uChecker);
    light = shade(base * mix(.80, 1.10, square), n, v, 0.0);
    float glance = pow(1.0 - max(dot(n, v), 0.0), 3.0);
    light = mix(light, uFog, smoothstep(3.5, 16.0, away));
    alpha *= mix(1.0 - uReflect * (.35 + .65 * glance), 1.0, smoothstep(2.0, 9.0, away));
  } else {
    light = shade(base, n, v, 1.0);
    light = mix(light, uFog, .85 * smoothstep(9.0, 30.0, away));
  }
  // Filmic shoulder, then sRGB.
  light = light * (1.0 + light * .16) / (1.0 + light * .42);
  color = vec4(pow(light, vec3(1.0 / 2.2)), alpha);
}`;

const SKY_VERTEX = `#version 300 es
precision highp float;
out vec2 vAt;
void main() { vAt = vec2((gl_VertexID << 1) & 2, gl_VertexID & 2) * 2.0 - 1.0; gl_Position = vec4(vAt, 1.0, 1.0); }`;

const SKY_FRAGMENT = `#version 300 es
precision highp float;
in vec2 vAt;
uniform vec3 uForward, uRight, uUp, uFog;
out vec4 color;
void main() {
  vec3 ray = normalize(uForward + vAt.x * uRight + vAt.y * uUp);
  vec3 zenith = vec3(.22, .40, .68);
  vec3 light = mix(uFog, zenith, smoothstep(-.02, .42, ray.z));
  light = mix(light, uFog * .92, smoothstep(0.0, .6, -ray.z));
  light = light * (1.0 + light * .16) / (1.0 + light * .42);
  color = vec4(pow(light, vec3(1.0 / 2.2)), 1.0);
}`;
