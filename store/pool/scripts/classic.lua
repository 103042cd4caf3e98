-- A level sinks by the greatest common divisor with each round, from the greatest weight down; who has a weight of at least that is served.
local function choose()
  local step, greatest = 0, 0
  for i = 1, size do
    local weight = numbers[2 * i - 1]
    if weight > 0 and not skip[i] then
      local a, b = step, weight
      while b > 0 do a, b = b, a % b end
      step = a
      if weight > greatest then greatest = weight end
    end
  end
  if greatest == 0 then return nil, nobody end
  if level > greatest then level = greatest end
  while true do
    place = place + 1
    if place > size then place = 1 end
    if place == 1 then
      level = level - step
      if level <= 0 then level = greatest end
    end
    if numbers[2 * place - 1] >= level and not skip[place] then return at_place(place) end
  end
end
local function keep() call('SETRANGE', KEYS[1], '16', pack('<dd', place, level)) end
