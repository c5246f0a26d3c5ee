"""The loss around a trained model: random directions, lines, surfaces, flatness and curvature (EM Fig. 5).

    problem = landscape.of_run(run)                                # 256 images, own loss and full-label BCE
    line = landscape.line(problem, np.linspace(-1, 1, 51))         # one row per direction, three directions
    surface = landscape.surface(problem, np.linspace(-1, 1, 25), path=Path("gr.safetensors"))
    landscape.width(line.alphas, line.values["own"][0], delta=0.1)
    landscape.curvature(problem, "full_bce").top

    near = landscape.Neighbourhood(run, "runs/landscapes")         # the same, stored in files and read again
    near.surface(np.linspace(-1, 1, 25)), near.curvature("own")

Method: Li et al., "Visualizing the loss landscape of neural nets", NeurIPS 2018.
"""

from spml_core import extra

with extra("notebooks"):
    from spml_core.landscape.directions import random_direction
    from spml_core.landscape.flatness import Curvature, curvature, mean_rise, width
    from spml_core.landscape.neighbourhood import Neighbourhood
    from spml_core.landscape.problem import FullBCE, MethodLoss, Problem, of_run
    from spml_core.landscape.surfaces import Landscape, line, surface
