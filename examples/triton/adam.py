"""One step of Adam over a flat parameter, moments and all in one pass, everything in place."""

import torch
import triton
import triton.language as tl


# kernelopt: inputs=make_inputs
@triton.jit
def adam_kernel(
    param_ptr, grad_ptr, first_ptr, second_ptr, n, rate, beta1, beta2, eps, correction1, correction2,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    param = tl.load(param_ptr + i, mask=mask)
    grad = tl.load(grad_ptr + i, mask=mask)
    first = beta1 * tl.load(first_ptr + i, mask=mask) + (1.0 - beta1) * grad
    second = beta2 * tl.load(second_ptr + i, mask=mask) + (1.0 - beta2) * grad * grad
    step = rate * (first / correction1) / (tl.sqrt(second / correction2) + eps)
    tl.store(param_ptr + i, param - step, mask=mask)
    tl.store(first_ptr + i, first, mask=mask)
    tl.store(second_ptr + i, second, mask=mask)


def adam(param, grad, first, second, step, rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-8):
    n = param.numel()
    adam_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](
        param, grad, first, second, n, rate, beta1, beta2, eps, 1 - beta1**step, 1 - beta2**step,
        BLOCK=256, num_warps=4)


def make_inputs(device="cpu"):
    n = 5000 if torch.device(device).type == "cpu" else 1 << 26
    param, grad, first = (torch.randn(n, device=device) for _ in range(3))
    second = torch.rand(n, device=device)
    return [lambda: adam(param, grad, first, second, 3)]
